import subprocess
import sys


def test_evaluating_a_saved_run_imports_no_torch() -> None:
    code = "import sys, longtail.evaluation.report; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
