import subprocess
import sys

import longtail


def test_importing_longtail_imports_no_torch() -> None:
    code = "import sys, longtail; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_submodules_are_imported_on_first_use() -> None:
    assert longtail.nn.__name__ == "longtail.nn"
    assert "nn" in dir(longtail)
