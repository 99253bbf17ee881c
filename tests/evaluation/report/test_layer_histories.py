import re

from longtail.evaluation import MixtureLayer, MixtureRecord
from longtail.evaluation.report.layer_histories import layer_histories

GROUPS = {"many": [0], "few": [1, 2]}


def record(epoch: int, heavy: float, distance: float, few: float) -> MixtureRecord:
    apart = ((0.0, distance), (distance, 0.0))
    usage = ((0.5, 0.5), None, (few, 1 - few))
    return MixtureRecord(epoch, (MixtureLayer("bn", (heavy, 1 - heavy), apart, usage),))


def test_a_layer_shows_its_first_and_last_numbers() -> None:
    (layer,), epochs = layer_histories([record(5, 0.5, 0.25, 0.6), record(10, 1.0, 1.5, 0.1)], GROUPS)
    assert epochs == (5, 10)
    assert layer.effective.words == "2.0 → 1.0"
    assert layer.distance is not None
    assert layer.distance.words == "0.25 → 1.5"
    assert layer.use["few"].words.replace("\N{NO-BREAK SPACE}", " ") == "60 % in 1 → 90 % in 2"
    assert 'aria-label="Effective components of bn: 2.0 after epoch 5, 1.0 after epoch 10"' in layer.effective.chart
    assert "at the end mostly 2 (90 per cent)" in layer.use["few"].chart


def test_the_line_runs_from_all_components_down_to_one() -> None:
    (layer,), _ = layer_histories([record(5, 0.5, 1, 0.5), record(10, 1.0, 1, 0.5)], GROUPS)
    found = re.search(r'class="curve accent" d="M(\S+) (\S+)L(\S+) (\S+)"', layer.effective.chart)
    assert found is not None
    assert [float(value) for value in found.groups()] == [2, 3, 94, 23]


def test_a_strip_has_a_box_for_each_run_of_a_shade() -> None:
    # Component 1: 0.5, 0.5, 1.0; component 2: 0.5, 0.5, 0.0. Twice a box two columns wide, once a dark one.
    history = [record(1, 0.5, 1, 0.5), record(2, 0.5, 1, 0.5), record(3, 0.5, 1, 1.0)]
    (layer,), _ = layer_histories(history, GROUPS)
    assert re.findall(r'class="shade s(\d+)" d="(.*?)"', layer.use["few"].chart) == [
        ("5", "M0 0h64v13h-64zM0 13h64v13h-64z"),
        ("10", "M64 0h32v13h-32z"),
    ]


def test_a_group_without_images_has_no_strip_and_one_component_no_distance() -> None:
    one = [MixtureRecord(epoch, (MixtureLayer("bn", (1.0,), ((0.0,),), ((1.0,), None)),)) for epoch in (1, 2)]
    (layer,), _ = layer_histories(one, {"many": [0], "few": [1]})
    assert layer.distance is None
    assert set(layer.use) == {"many"}


def test_one_record_is_no_history() -> None:
    assert layer_histories([record(1, 0.5, 1, 0.5)], GROUPS) == ([], None)


def test_of_many_records_a_few_are_drawn_with_the_first_and_the_last() -> None:
    (layer,), epochs = layer_histories([record(e, 0.5 + e / 2000, 1, 0.5) for e in range(1, 401)], GROUPS)
    assert epochs == (1, 400)
    assert len(re.findall("L", layer.effective.chart)) == 23
