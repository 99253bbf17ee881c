import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from longtail.cli import run
from longtail.evaluation.report.render_template import read_template


def test_the_page_has_every_class_and_its_names_stay_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw = np.random.default_rng(0)
    for name, count in (("<b>cat & co", 5), ("dog", 3)):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for number in range(count):
            picture = Image.fromarray(draw.integers(0, 255, (9, 9, 3), dtype=np.uint8))
            picture.save(tmp_path / "pets" / name / f"{number}.png")
    (tmp_path / "pets" / "dog" / "broken.png").write_bytes(b"no image")
    page = tmp_path / "page.html"
    assert run(["check", str(tmp_path / "pets"), "--html", str(page)]) == 0
    assert "train 8" in capsys.readouterr().out  # printed all the same
    text = page.read_text()
    assert re.findall(r'class="n">(\d+)', text) == ["5", "3"]
    assert "&lt;b&gt;cat &amp; co" in text
    assert "<b>" not in text
    assert "unreadable and left out: 1 of 9 images" in text
    assert not re.search(r"https?://", text)
    # It is a page of the same make as the report: its style, its policy, and the numbers for scripts.
    assert read_template("style.css") in text
    assert "default-src &#39;none&#39;" in text
    assert json.loads(re.findall(r'id="longtail-data">(.*?)</script>', text)[0])["train"] == 8


def test_a_page_that_cannot_be_written_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "digits-lt", "--html", str(tmp_path / "nowhere" / "page.html")]) == 3
    assert "cannot write" in capsys.readouterr().err
