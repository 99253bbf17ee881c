import pytest

from longtail.evaluation.report.svg import Panel, number, percent, points, shorten, svg, text, ticks


def test_a_panel_turns_values_into_coordinates_with_y_upwards() -> None:
    panel = Panel(10, 20, 100, 50, (0.0, 4.0), (-1.0, 1.0))
    assert (panel.x(0), panel.x(4), panel.x(1)) == (10, 110, 35)
    assert (panel.y(-1), panel.y(1), panel.y(0)) == (70, 20, 45)


def test_a_panel_of_one_value_puts_it_in_the_middle() -> None:
    assert Panel(0, 0, 100, 50, (3.0, 3.0)).x(3) == 50


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 500, [0, 100, 200, 300, 400, 500]),
        (0, 0.05, [0, 0.01, 0.02, 0.03, 0.04, 0.05]),
        (-0.1, 0.1, [-0.1, -0.05, 0, 0.05, 0.1]),
        (3, 3, [3]),
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
    ],
)
def test_ticks_are_round_numbers_inside_the_range(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(expected)


def test_names_are_cut_with_an_ellipsis() -> None:
    assert shorten("w" * 200, 10) == "w" * 9 + "…"
    assert shorten("two\nlines", 20) == "two lines"
    assert shorten("exactly", 7) == "exactly"


def test_numbers_are_short_and_differences_have_a_sign() -> None:
    assert [number(v) for v in (3.0, 3.04, -0.01, 2.55)] == ["3", "3", "0", "2.5"]
    assert [percent(v) for v in (0.12345, None)] == ["12.3", "–"]
    assert [points(v) for v in (0.1, -0.0004, -0.02)] == ["+10.0", "0.0", "−2.0"]


def test_words_and_labels_are_escaped() -> None:
    picture = svg([text(0, 0, "<b>")], width=1, height=1, label='say "hi" & <go>')
    assert "&lt;b&gt;" in picture
    assert 'aria-label="say &#34;hi&#34; &amp; &lt;go&gt;"' in picture
