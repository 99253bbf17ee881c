import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from markupsafe import Markup

from longtail._files import write_text
from longtail.evaluation import Evaluation, compare_runs, evaluate, mixture_records
from longtail.evaluation.report import SECTIONS, Report, Section, Thumbnail, render_comparison, render_report
from longtail.evaluation.report.render import TOP_CONFUSIONS
from tests.support.demo_report import STRANGE, comparison, full_report, training_rows
from tests.support.simulated_logits import simulate


class Page(HTMLParser):
    """The elements, their attributes and the text of a page; text in scripts and styles stays apart."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.raw: list[tuple[dict[str, str | None], str]] = []
        self._open = ""
        self.feed(html)
        self.text = " ".join("".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open = tag

    def handle_data(self, data: str) -> None:
        if self._open in ("script", "style"):
            self.raw.append((self.tags[-1][1], data))
        else:
            self.words.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag == self._open:
            self._open = ""

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def sections(self) -> list[str | None]:
        return [attributes["id"] for attributes in self.all("section")]

    @property
    def data(self) -> dict[str, object]:
        (text,) = (text for attributes, text in self.raw if attributes.get("type") == "application/json")
        found: dict[str, object] = json.loads(text)
        return found


REPORT = full_report(30, images_per_class=10)
HTML = render_report(REPORT)
PAGE = Page(HTML)


def bare(logits: object, target: object, counts: list[int], classes: list[str] | None = None) -> Page:
    found = evaluate(np.asarray(logits), np.asarray(target), counts, classes, replicates=20)
    return Page(render_report(Report(found, "bare")))


def test_the_parts_stand_in_the_order_a_reader_asks() -> None:
    assert PAGE.sections == [
        "verdict", "classes", "size", "table", "confusion", "reliability", "posthoc", "mixture", "training",
        "errors", "problems", "config", "environment", "command",
    ]  # fmt: skip


def test_a_part_without_data_is_absent() -> None:
    page = Page(render_report(Report(REPORT.evaluation, "bare")))
    assert page.sections == ["verdict", "classes", "size", "table", "confusion", "reliability"]
    assert page.all("img") == []


def test_the_four_numbers_stand_with_their_intervals() -> None:
    found = REPORT.evaluation
    for estimate in (found.balanced, found.top1, found.ece, *(g.accuracy for g in found.groups.values())):
        assert estimate is not None
        assert estimate.low is not None
        assert estimate.high is not None
        assert f"{100 * estimate.value:.1f}" in PAGE.text
        assert f"{100 * estimate.low:.1f} to {100 * estimate.high:.1f}" in PAGE.text
    assert "many: more than 100, medium: 20 to 100, few: fewer than 20 training images" in PAGE.text.lower()


def test_the_page_says_how_the_numbers_came_about() -> None:
    for words in (
        "stratified bootstrap of the test images, 200 resamples",
        "weights of the last epoch",
        "chosen on 300 validation images by balanced accuracy; the test images were not used",
        "chosen on 300 validation images by negative log-likelihood",
        "2 of 31 layers have collapsed, first layer1.3.bn2 after epoch 3.",
        "collapsed: all components are the same, first seen after epoch 3",
        "collapsed: one component has 99.7% of the mass, first seen after epoch 60",
        "From epoch 3 to 60, left to right.",
        "How the method differs from its paper:",
        "temperature is channels, the paper's 1.0",
        "longtail train --config runs/demo/config.yaml",
    ):
        assert words in PAGE.text


def test_the_policy_allows_the_inline_script_and_style_by_hash_and_nothing_else() -> None:
    (policy,) = (m["content"] for m in PAGE.all("meta") if m.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'; img-src data:; ")
    assert "unsafe" not in policy
    for directive, pattern in (
        ("style-src", "<style>(.*?)</style>"),
        ("script-src", "<script>(.*?)</script>"),
    ):
        (content,) = re.findall(pattern, HTML, re.S)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}';" in policy
    assert not [attributes for _, attributes in PAGE.tags if "style" in attributes]
    assert not [name for _, attributes in PAGE.tags for name in attributes if name.startswith("on")]


def test_nothing_points_outside_the_file() -> None:
    for _, attributes in PAGE.tags:
        for name in ("src", "href", "action", "srcset", "data"):
            assert (attributes.get(name) or "data:").startswith("data:")
    assert not re.search(r"https?:|url\(|@import", HTML)


def test_every_chart_says_what_it_shows() -> None:
    pictures = PAGE.all("svg")
    assert len(pictures) > 50
    for picture in pictures:
        assert picture.get("aria-label") or picture.get("aria-hidden") == "true"
    labels = [p["aria-label"] for p in pictures if p.get("role") == "img"]
    assert f"Balanced accuracy {100 * REPORT.evaluation.balanced.value:.1f} per cent." in str(labels[0])


def test_the_embedded_json_holds_the_numbers_and_the_training_rows() -> None:
    expected = json.loads(REPORT.evaluation.to_json()) | {"confusions_left_out": 0}
    assert PAGE.data["evaluation"] == expected
    assert PAGE.data["training"] == training_rows(60)


def test_the_embedded_json_holds_the_history_of_the_mixtures() -> None:
    sections = PAGE.data["sections"]
    assert isinstance(sections, dict)
    found = sections["mixture"]["history"]
    assert [record["epoch"] for record in found] == list(range(3, 61, 3))
    layer, expected = found[4]["layers"][2], mixture_records(REPORT.records)[4].layers[2]
    assert layer["effective_components"] == pytest.approx(expected.effective_components, abs=6e-4)
    few = [k for k, c in enumerate(REPORT.evaluation.classes) if c.group == "few"]
    rows = np.array([expected.usage[k] for k in few])
    assert layer["usage"]["few"] == pytest.approx(rows.mean(axis=0), abs=6e-4)


def test_the_table_holds_every_class() -> None:
    rows = re.findall(
        r'<tr><th scope="row">(.*?)</th><td class="(\w+)">\w+<td class="n">(\d+)<td class="n">(\d+)', HTML
    )
    assert len(rows) == 30
    for (name, group, train, support), c in zip(rows, REPORT.evaluation.classes, strict=True):
        assert (name, group, int(train), int(support)) == (c.name, c.group, c.train, c.support)


def test_class_names_are_text_and_nothing_else() -> None:
    page = Page(render_report(full_report(6, classes=STRANGE)))
    assert len(page.all("img")) == 12  # the thumbnails
    assert not page.all("b") or all(not attributes for attributes in page.all("b"))
    for name in STRANGE:
        assert name[:50] in page.text
    evaluation = page.data["evaluation"]
    assert isinstance(evaluation, dict)
    assert [c["name"] for c in evaluation["classes"]] == STRANGE
    assert len([a for a, _ in page.raw if not a.get("type")]) == 2  # one script, one style


def test_more_than_thirty_classes_show_blocks_and_the_top_confusions() -> None:
    page = Page(render_report(full_report(31, images_per_class=5)))
    assert "Classes in blocks of similar size" in page.text
    assert "Classes in blocks of similar size" not in PAGE.text
    html = render_report(full_report(60, images_per_class=5))
    table = html[html.index('aria-label="Most frequent confusions"') :]
    assert table[: table.index("</table>")].count('<th scope="row">') == TOP_CONFUSIONS


def test_cells_of_the_confusion_matrix_are_per_cent_of_the_row() -> None:
    # Ten images of class 0: seven right, three taken for class 1.
    logits = np.eye(2)[[0] * 7 + [1] * 3 + [1] * 10]
    html = render_report(Report(evaluate(logits, [0] * 10 + [1] * 10, [200, 5], ["a", "b"], replicates=5), "x"))
    assert re.findall(r'class="cell[ \w]*" [^>]*>(\d+)<', html) == ["70", "30", "100"]


def test_a_thousand_classes_with_long_names_stay_under_two_megabytes() -> None:
    names = [f"{k} " + "n" * 196 for k in range(1000)]
    html = render_report(full_report(1000, images_per_class=3, classes=names, largest=1280, replicates=5))
    assert len(html.encode()) < 2_000_000
    assert html.count('<td class="many">') + html.count('<td class="medium">') + html.count('<td class="few">') == 1000


def test_one_test_image_makes_a_right_page() -> None:
    page = bare([[0.0, 2.0, 1.0]], [1], [200, 50, 5])
    assert "1 test image ·" in page.text
    assert "One test image gives no interval." in page.text
    assert "Balanced over 1 of 3 classes: 2 have no test image." in page.text
    assert "no interval" in page.text


def test_all_predictions_equal_make_a_right_page() -> None:
    page = bare(np.tile([3.0, 0, 0, 0], (40, 1)), np.repeat(np.arange(4), 10), [200, 50, 50, 5])
    assert "3 of 4 classes are never recognised." in page.text
    assert "3 of 4 classes are never predicted." in page.text


def test_a_class_missing_from_the_test_set_shows_a_dash() -> None:
    page = bare(np.eye(3)[[0, 0, 1]], [0, 0, 1], [200, 50, 5])
    assert "Balanced over 2 of 3 classes: 1 has no test image." in page.text
    assert "no test image –" in page.text  # the card of the few-shot group


@pytest.mark.parametrize("counts", [[0, 0], [1, 1], [10**6, 0]])
def test_any_class_sizes_make_a_page(counts: list[int]) -> None:
    assert bare(np.eye(2), [0, 1], counts).sections


def test_two_classes_and_a_thousand_test_images_of_one_class_make_a_page() -> None:
    assert bare(np.tile([1.0, 0.0], (1000, 1)), np.zeros(1000, dtype=int), [5, 5]).sections


def test_training_rows_with_gaps_and_nan_make_a_page() -> None:
    rows: list[dict[str, float | None]] = [
        {"epoch": 0, "train/loss": 2.0, "val/accuracy": None},
        {"epoch": 1, "train/loss": float("nan"), "val/accuracy": 0.5},
        {"epoch": 2, "train/loss": 1.0, "val/accuracy": 0.6},
    ]
    page = Page(render_report(Report(REPORT.evaluation, "x", training=rows)))
    assert page.data["training"] == [rows[0], {"epoch": 1, "train/loss": "nan", "val/accuracy": 0.5}, rows[2]]
    (loss,) = (p for p in page.all("svg") if str(p.get("aria-label")).startswith("Loss"))
    assert loss["aria-label"] == "Loss; at the end train/loss 1"


def test_one_epoch_has_no_curve() -> None:
    page = Page(render_report(Report(REPORT.evaluation, "x", training=training_rows(1))))
    assert "training" not in page.sections


def test_a_record_of_an_unknown_section_is_ignored() -> None:
    page = Page(render_report(Report(REPORT.evaluation, "x", records=[{"epoch": 1, "centroids": [1.0]}])))
    assert page.data["sections"] == {}
    assert "training" not in page.sections


def test_another_package_can_add_a_section(monkeypatch: pytest.MonkeyPatch) -> None:
    def centroids(records: Sequence[Mapping[str, Any]], evaluation: Evaluation) -> Section:
        shown = f"{len(evaluation.classes)} classes, last {records[-1]['centroids']}"
        return Section(Markup('<section id="centroids"><p>{}</p></section>').format(shown), {"shown": shown})

    monkeypatch.setitem(SECTIONS._units, "centroids", centroids)
    records: list[Mapping[str, Any]] = [{"epoch": 1, "centroids": 3}, {"epoch": 2, "centroids": "<b>"}]
    page = Page(render_report(Report(REPORT.evaluation, "x", records=records)))
    assert page.sections[-1] == "centroids"
    assert "30 classes, last <b>" in page.text
    assert page.data["sections"] == {"centroids": {"shown": "30 classes, last <b>"}}


def test_a_page_can_be_written_even_when_a_name_is_no_text(tmp_path: Path) -> None:
    found = evaluate(np.eye(2), [0, 1], [5, 5], ["\udcff", "é"], replicates=5)
    write_text(tmp_path / "report.html", render_report(Report(found, "x")), errors="replace")
    saved = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert '<th scope="row">?</th>' in saved
    assert '<th scope="row">é</th>' in saved


def test_an_image_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"image of a\.svg must be a PNG or JPEG file, got b'<svg'"):
        Thumbnail(b"<svg", "cat", "dog", 0.9, "a.svg")


def test_the_comparison_says_what_differs_and_what_does_not() -> None:
    found = comparison()
    page = Page(render_comparison(found))
    assert "No difference shown between erm, seed 1 and erm." in page.text
    assert "balanced_softmax differs from erm in" in page.text
    assert re.search(r"few-shot accuracy is [\d.]+ points higher: better", page.text)
    for d in found.differences:
        assert f"{abs(100 * d.value):.1f}" in page.text
    assert page.data["metrics"] == {name: e.metrics for name, e in found.evaluations.items()}


def test_names_of_runs_and_classes_are_text_in_a_comparison() -> None:
    data = simulate(6, images_per_class=10)
    runs = {"<script>a</script>": data.logits, "<b>": -data.logits}
    page = Page(render_comparison(compare_runs(runs, data.target, data.counts, STRANGE, replicates=20)))
    assert page.all("img") == []
    assert page.all("b") == []
    assert "<b> differs from <script>a</script>" in page.text


def test_a_comparison_on_one_image_makes_a_page() -> None:
    found = compare_runs({"a": [[1.0, 0.0]], "b": [[0.0, 1.0]]}, [0], [5, 5])
    assert "No difference shown between b and a." in Page(render_comparison(found)).text
