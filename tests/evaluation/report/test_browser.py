"""The page in a real browser, opened from disk as a user would open it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from longtail._files import write_text
from longtail.evaluation.report import render_comparison, render_report
from tests.support.demo_report import STRANGE, comparison, full_report

Open = Callable[..., Page]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    pages = {
        "ten": render_report(full_report(10, images_per_class=10, largest=5000)),
        "strange": render_report(full_report(6, images_per_class=5, classes=STRANGE)),
        "thousand": render_report(full_report(1000, images_per_class=2, largest=1280, replicates=5)),
        "comparison": render_comparison(comparison(20)),
    }
    for name, html in pages.items():
        write_text(folder / f"{name}.html", html, errors="replace")
    return {name: folder / f"{name}.html" for name in pages}


@pytest.fixture
def open_page(browser: Browser, files: dict[str, Path]) -> Iterator[Open]:
    """Open a page; fail in the end if it wrote to the console or asked for anything but itself."""
    opened = []
    complaints: list[str] = []

    def complain(what: str) -> None:
        complaints.append(what)

    def open_one(name: str, *, javascript: bool = True) -> Page:
        context = browser.new_context(
            viewport={"width": 1200, "height": 900}, java_script_enabled=javascript, offline=True
        )
        opened.append(context)
        page = context.new_page()
        address = files[name].as_uri()
        page.on("console", lambda message: complain(f"console: {message.text}"))
        page.on("pageerror", lambda error: complain(f"error: {error}"))
        page.on("dialog", lambda dialog: complain(f"dialog: {dialog.message}"))
        page.on(
            "request",
            lambda request: None if request.url.startswith((address, "data:")) else complain(f"request: {request.url}"),
        )
        page.goto(address)
        return page

    yield open_one
    for context in opened:
        context.close()
    assert complaints == []


def column(page: Page, number: int) -> list[str]:
    """The first text of each cell of one column of the table of classes."""
    first = "(rows, n) => rows.map(row => row.cells[n].firstChild?.textContent ?? '')"
    found: list[str] = page.locator("#table tbody tr").evaluate_all(first, number)
    return found


@pytest.mark.parametrize("name", ["ten", "strange", "thousand", "comparison"])
def test_no_page_scrolls_sideways(open_page: Open, name: str) -> None:
    page = open_page(name)
    for width in (1200, 768, 390, 320):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_names_of_settings_stay_in_their_column_on_a_narrow_screen(open_page: Open) -> None:
    page = open_page("comparison")
    page.set_viewport_size({"width": 390, "height": 900})
    beyond = """[...document.querySelectorAll("#settings th code")].map(
        code => code.getBoundingClientRect().right - code.closest("th").getBoundingClientRect().right)"""
    found = page.evaluate(beyond)
    assert len(found) == 2
    assert max(found) <= 0


def test_numbers_sort_largest_first_and_then_smallest_first_with_dashes_last(open_page: Open) -> None:
    page = open_page("thousand")
    head = page.locator("#table th[scope=col]", has_text="Precision")
    for way in ("descending", "ascending"):
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == way
        shown = column(page, 5)
        values = [float(text) for text in shown if text != "–"]
        assert values == sorted(values, reverse=way == "descending")
        assert 0 < shown.count("–") == len(shown) - len(values)
        assert set(shown[len(values) :]) == {"–"}


def test_names_sort_by_the_alphabet(open_page: Open) -> None:
    page = open_page("ten")
    before = column(page, 0)
    page.locator("#table th[scope=col] button", has_text="Class").click()
    assert column(page, 0) == sorted(before)
    page.locator("#table th[scope=col] button", has_text="Train").click()
    assert column(page, 0) == before


def test_differences_sort_by_sign(open_page: Open) -> None:
    page = open_page("comparison")
    table = page.locator("table.sortable", has=page.locator("th", has_text="Gained")).first
    table.locator("th[scope=col] button", has_text="Change").click()
    shown = table.locator("tbody tr > :nth-child(4)").all_inner_texts()
    values = [float(text.replace("−", "-")) for text in shown]
    assert values == sorted(values, reverse=True)
    assert values[-1] < 0 < values[0]


def test_a_class_can_be_found_by_a_part_of_its_name(open_page: Open) -> None:
    page = open_page("thousand")
    page.get_by_role("searchbox").fill("HERON 10")
    visible = page.locator("#table tbody tr:visible th").all_inner_texts()
    assert len(visible) == 10
    assert all("heron 10" in name for name in visible)


def test_without_javascript_every_number_is_there(open_page: Open) -> None:
    report = full_report(10, images_per_class=10, largest=5000)
    page = open_page("ten", javascript=False)
    text = page.locator("main").inner_text()
    for value in (
        report.evaluation.balanced.value,
        report.evaluation.top1.value,
        report.evaluation.ece.value,
    ):
        assert f"{100 * value:.1f}" in text
    for result in report.evaluation.classes:
        assert result.name in text
    assert page.locator("#table tbody tr").count() == 10
    assert page.locator("button, input").count() == 0  # nothing that would not work


def test_strange_class_names_stay_text(open_page: Open) -> None:
    page = open_page("strange")
    assert page.locator("img").count() == 12
    shown = page.locator("#table tbody th").all_inner_texts()
    assert sorted(name[:40] for name in shown) == sorted(name[:40] for name in STRANGE)


def test_a_script_can_read_the_embedded_numbers(open_page: Open) -> None:
    page = open_page("strange")
    read = "JSON.parse(document.getElementById('longtail-data').textContent).evaluation.classes.map(c => c.name)"
    assert page.evaluate(read) == STRANGE


def test_the_page_is_light_or_dark_as_the_reader_likes(open_page: Open) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    page = open_page("ten")
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(ground) == "rgb(20, 23, 26)"


def test_narrow_screens_get_charts_drawn_for_them(open_page: Open) -> None:
    page = open_page("ten")
    for width, drawn in ((390, 358), (1200, 880)):
        page.set_viewport_size({"width": width, "height": 900})
        box = page.locator("#classes svg.chart:visible").bounding_box()
        assert box is not None
        assert abs(box["width"] - drawn) < 12  # drawn at its own size, so its words are as large as meant


def test_the_history_of_the_mixtures_needs_no_scrolling_sideways_on_a_narrow_screen(open_page: Open) -> None:
    page = open_page("thousand", javascript=False)
    page.set_viewport_size({"width": 390, "height": 900})
    box = page.locator("#mixture .scroll").last
    assert box.evaluate("element => element.scrollWidth <= element.clientWidth")
    assert "4.0 → 1.0" in box.inner_text()  # the layer that one component takes over


def test_print_shows_the_whole_table_in_light_colours(open_page: Open) -> None:
    page = open_page("thousand")
    page.emulate_media(media="print", color_scheme="dark")
    box = page.locator("#table .tall").bounding_box()
    assert box is not None
    assert box["height"] > 1000 * 15
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator(".filter:visible").count() == 0


def test_headers_and_boxes_are_reached_with_the_keyboard(open_page: Open) -> None:
    page = open_page("ten")
    head = page.locator("#table th[scope=col] button", has_text="Recall")
    head.focus()
    page.keyboard.press("Enter")
    shown = [float(text) for text in column(page, 4)]
    assert shown == sorted(shown, reverse=True)
    assert page.locator(".scroll:not([tabindex])").count() == 0
