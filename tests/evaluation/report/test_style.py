import re
from importlib.resources import files
from itertools import combinations, product

import numpy as np
import numpy.typing as npt
import pytest

STYLE = files("longtail.evaluation.report").joinpath("templates", "style.css").read_text(encoding="utf-8")
LIGHT, DARK, PRINT = (
    dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", block)) for block in re.findall(r":root \{(.*?)\}", STYLE, re.S)
)
SCHEMES = pytest.mark.parametrize("colours", [LIGHT, DARK, PRINT], ids=["light", "dark", "print"])

# What people without red or green cones see, in linear RGB: Viénot, Brettel and Mollon, 1999.
PROTANOPIA = np.array([[0.11238, 0.88762, 0.0], [0.11238, 0.88762, 0.0], [0.00401, -0.00401, 1.0]])
DEUTERANOPIA = np.array([[0.29275, 0.70725, 0.0], [0.29275, 0.70725, 0.0], [-0.02234, 0.02234, 1.0]])


def linear(colour: str) -> npt.NDArray[np.float64]:
    share = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """WCAG 2.2: the ratio of relative luminances."""
    dark, light = sorted(float(linear(colour) @ [0.2126, 0.7152, 0.0722]) for colour in (one, other))
    return (light + 0.05) / (dark + 0.05)


def lab(rgb: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt(np.maximum(to_xyz @ rgb, 1e-4) / [0.9505, 1.0, 1.089])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@SCHEMES
def test_words_stand_out_from_their_ground(colours: dict[str, str]) -> None:
    words = ("ink", "quiet", "accent", "many", "medium-word", "few", "warn")
    for word, ground in product(words, ("paper", "raised")):
        assert contrast(colours[word], colours[ground]) >= 4.5, (word, ground)


@SCHEMES
def test_marks_stand_out_from_their_ground(colours: dict[str, str]) -> None:
    for mark in ("many", "medium", "few", "accent"):
        assert contrast(colours[mark], colours["paper"]) >= 3, mark


@SCHEMES
@pytest.mark.parametrize("sight", [np.eye(3), PROTANOPIA, DEUTERANOPIA], ids=["full", "no red", "no green"])
def test_the_groups_differ_for_colour_blind_readers(colours: dict[str, str], sight: npt.NDArray[np.float64]) -> None:
    for one, other in combinations(("many", "medium", "few"), 2):
        difference = np.linalg.norm(lab(sight @ linear(colours[one])) - lab(sight @ linear(colours[other])))
        assert difference > 20, (one, other)  # 2.3 is just noticeable


def test_every_colour_comes_from_the_scheme() -> None:
    rules = re.sub(r":root \{.*?\}", "", STYLE, flags=re.S)
    assert not re.findall(r"#[0-9a-f]{3,8}\b|rgba?\(", rules)
