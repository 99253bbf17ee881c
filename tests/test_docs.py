"""The pages: links that lead somewhere, figures and tables of the committed records, and prose that can be read."""

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Browser, Page

from benchmarks.figures.__main__ import FIGURES, FOLDER
from longtail.cli import run
from longtail.methods import METHODS
from longtail.training.recipes import list_presets
from tools.build_site import LINK, ROOT, broken_links, page_places, relink

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "benchmarks").glob("**/README.md")])
# A number that stands for itself: ResNet-32, 10-fold, `--time 3m` and the targets of links are none.
NUMBER = re.compile(r"(?<![\w.-])[-+−±]?\d[\d,.]*(?![\w-])")
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]


def prose(text: str) -> str:
    """The page without code blocks and comments."""
    return re.sub(r"<!--.*?-->|^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def paragraphs(text: str) -> list[str]:
    """Paragraphs and items of lists, without tables, headings and HTML."""
    found, lines = list[str](), list[str]()
    for line in [*(line.strip() for line in prose(text).splitlines()), ""]:
        starts = bool(re.match(r"([-*]|\d+\.) ", line))
        if not line or starts or line.startswith(("|", "#", "<")):
            found.append(" ".join(lines))
            lines = [line] if starts else []
        else:
            lines.append(line)
    return [paragraph for paragraph in found if paragraph]


def numbers(paragraph: str) -> list[str]:
    """The numbers that a reader meets."""
    item = re.sub(r"^([-*]|\d+\.) ", "", paragraph)
    return NUMBER.findall(re.sub(r"`[^`]*`|\]\([^)]*\)", "", item))


def anchors(page: Path) -> set[str]:
    """The anchors of the headings of a page, as forges make them."""
    heads = re.findall(r"^#+ (.*)$", prose(page.read_text(encoding="utf-8")), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("name", NAMES)
def test_each_link_of_a_page_leads_to_a_file_and_a_heading(name: str) -> None:
    page = ROOT / name
    text = prose(page.read_text(encoding="utf-8"))
    addresses = [match[3] for match in LINK.finditer(text)] + re.findall(r'(?:src|srcset)="([^"]+)"', text)
    for address in addresses:
        if re.match(r"[a-z]+:", address):
            continue
        path, _, anchor = address.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name} links to {address}"
        assert not anchor or anchor in anchors(target), f"{name} links to {address}"


@pytest.mark.parametrize("name", NAMES)
def test_no_paragraph_has_more_than_five_numbers(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    crowded = {paragraph[:80]: numbers(paragraph) for paragraph in paragraphs(text) if len(numbers(paragraph)) > 5}
    assert not crowded, "put the numbers into a table"


def test_the_tables_of_methods_say_of_each_when_to_take_it() -> None:
    text = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| Name \| Take it when .*?\n\n", text, flags=re.MULTILINE | re.DOTALL)
    listed = {name for part in table for name in re.findall(r"`(\w+)`", "".join(re.findall(r"^\|[^|]*\|", part, re.M)))}
    assert listed == {*METHODS, *list_presets()}


def test_numbers_are_those_that_a_reader_meets() -> None:
    assert numbers("- 3.5 of ResNet-32, `lr 0.1`, +0.6 (-0.4 to 1.7), 95 % [here](a1.md#2)") == [
        "3.5",
        "+0.6",
        "-0.4",
        "1.7",
        "95",
    ]
    assert paragraphs("one\ntwo\n\n- a\n  b\n- c\n\n| 1 |\n```sh\n1 2\n```\n# 5") == ["one two", "- a b", "- c"]


@pytest.mark.parametrize(("name", "most"), [("README.md", 120), ("docs/evidence.md", 120)])
def test_a_page_that_is_read_to_the_end_is_short(name: str, most: int) -> None:
    assert len((ROOT / name).read_text(encoding="utf-8").splitlines()) <= most


@pytest.mark.parametrize("name", FIGURES)
def test_each_figure_is_drawn_from_the_committed_records(name: str) -> None:
    stale = f"docs/figures/{name}.svg is not of these records; run python -m benchmarks.figures"
    assert (FOLDER / f"{name}.svg").read_text(encoding="utf-8") == FIGURES[name](), stale


def test_every_figure_is_shown_somewhere() -> None:
    shown = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    unused = {path.name for path in FOLDER.iterdir()} - set(re.findall(r"figures/([\w.-]+)", shown))
    assert not unused


def test_every_page_is_in_the_menu_of_the_site() -> None:
    menu = set(re.findall(r'= "([\w/.-]+\.md)"', (ROOT / "zensical.toml").read_text(encoding="utf-8")))
    assert menu == {str(place) for place in page_places().values() if place.suffix == ".md"}


def test_links_to_files_that_are_no_pages_become_text_on_the_site() -> None:
    page = ROOT / "docs" / "evidence-tables.md"
    text = relink(page, page_places())
    assert "](studies/compound_bn.md)" in text
    assert "../" not in "".join(match[3] for match in LINK.finditer(text))


def test_a_broken_link_of_the_site_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<a href="b.html#there"></a><a href="b.html#not"></a><img src="c.svg">')
    (tmp_path / "b.html").write_text('<p id="there"></p>')
    assert list(broken_links(tmp_path)) == ["a.html: b.html#not", "a.html: c.svg"]


def test_the_error_that_a_page_shows_is_the_real_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "birds" / "robin").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(tmp_path / "birds" / "robin" / "1.png")
    assert run(["train", "birds/"]) == 3
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    shown = re.findall(r"^```\n(.*?)```$", page, flags=re.DOTALL | re.MULTILINE)
    assert capsys.readouterr().err.endswith(shown[0])


def test_the_site_builds_strictly_and_reads_from_disk(browser: Browser) -> None:
    """`make docs`, in one test, since two builds at once would be in each other's way."""
    command = [sys.executable, "-m", "tools.build_site"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    site = ROOT / "build" / "site"
    for name in ("train", "tune", "losses.BalancedSoftmaxLoss", "nn.convert_batch_norm"):
        assert f'id="longtail.{name}"' in (site / "api.html").read_text(encoding="utf-8")
    pages = [page for page in sorted(site.glob("**/*.html")) if page.name != "404.html"]
    wide = browser.new_context(viewport={"width": 1280, "height": 844}, color_scheme="light")
    narrow = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme="dark")
    for context, width in ((wide, 1280), (narrow, 390)):
        look_at(context.new_page(), pages, width)
        context.close()


def look_at(view: Page, pages: Sequence[Path], width: int) -> None:
    """No page writes to the console, asks for anything but files, scrolls sideways or lacks a picture; search finds."""
    complaints = list[str]()
    view.on("console", lambda message: complaints.append(message.text))
    view.on("pageerror", lambda error: complaints.append(str(error)))
    view.on("request", lambda request: complaints.append(request.url) if request.url.startswith("http") else None)
    for page in pages:
        view.goto(page.as_uri(), wait_until="load")
        assert view.evaluate("document.documentElement.scrollWidth") <= width, page.name
        assert view.evaluate("[...document.images].every(image => image.naturalWidth)"), page.name
        assert not complaints, page.name
    search(view, "cutmix", finds="Which method")


def search(view: Page, words: str, *, finds: str) -> None:
    """Search as a reader does: a key, words, and a page that is found."""
    view.keyboard.press("Control+k")
    field = view.get_by_role("combobox", name="Search")
    view.get_by_text("Loading search").wait_for(state="hidden")
    field.press_sequentially(words)
    view.get_by_role("option").filter(has_text=finds).first.wait_for()
