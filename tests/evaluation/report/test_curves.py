from longtail.evaluation.report.curves import training_curves

ROWS: list[dict[str, float | None]] = [
    {
        "epoch": epoch,
        "train/loss": 2.0 - epoch,
        "train/classification": 2.5 - epoch,
        "train/similarity": None if epoch < 2 else -0.5,  # a later stage alone has it
        "train/balanced": 0.25,
        "train/accuracy": 0.1 * epoch,
        "lr": 0.1,
        "val/accuracy": 0.1 * epoch,
        "val/accuracy_few": 0.05 * epoch,
        "mixture/effective_components": 4.0 - epoch,
    }
    for epoch in range(1, 5)
]


def test_each_column_is_drawn_in_its_chart() -> None:
    found = {curves.title: [series.name for series in curves.series] for curves in training_curves(ROWS)}
    assert found == {
        "Loss": ["train/loss"],
        "Parts of the loss": ["train/classification", "train/similarity", "train/balanced"],
        "Accuracy, %": ["train/accuracy", "val/accuracy", "val/accuracy_few"],
        "Mixture: effective components": ["mixture/effective_components"],
        "Learning rate": ["lr"],
    }


def test_a_part_of_the_loss_is_drawn_where_it_has_values() -> None:
    parts = next(curves for curves in training_curves(ROWS) if curves.title == "Parts of the loss")
    assert [series.points for series in parts.series[:2]] == [
        ((1.0, 1.5), (2.0, 0.5), (3.0, -0.5), (4.0, -1.5)),
        ((2.0, -0.5), (3.0, -0.5), (4.0, -0.5)),
    ]
    assert "at the end train/classification -1.5, train/similarity -0.5" in parts.chart


def test_one_part_is_the_loss_itself_and_has_no_chart() -> None:
    rows = [{name: row[name] for name in ("epoch", "train/loss", "train/classification")} for row in ROWS]
    assert [curves.title for curves in training_curves(rows)] == ["Loss"]
