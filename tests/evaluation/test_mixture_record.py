import json

import pytest

from longtail.evaluation import MixtureLayer, MixtureRecord, mixture_records, pack_layer

APART = ((0.0, 1.0), (1.0, 0.0))


def layer(name: str, heavy: float, usage: tuple[tuple[float, ...] | None, ...] = ()) -> MixtureLayer:
    return MixtureLayer(name, (heavy, 1 - heavy), APART, usage)


def stored(record: MixtureRecord) -> str:
    """As a run keeps it."""
    return json.dumps({"epoch": record.epoch, "mixture": [pack_layer(layer) for layer in record.layers]})


@pytest.mark.parametrize("usage", [((0.25, 0.75), None, (0.123, 0.877), None), ((0.25, 0.75), (0.5, 0.5)), ()])
def test_a_record_comes_back_from_plain_values(usage: tuple[tuple[float, ...] | None, ...]) -> None:
    record = MixtureRecord(7, (layer("a", 0.25, usage), layer("b", 0.5, usage)))
    assert mixture_records([json.loads(stored(record))]) == [record]


def test_a_class_without_images_may_stand_as_null() -> None:
    plain = {"name": "a", "priors": [0.5, 0.5], "distances": [[0, 1], [1, 0]], "usage": [[0.25, 0.75], None]}
    ((read,),) = (record.layers for record in mixture_records([{"epoch": 1, "mixture": [plain]}]))
    assert read == layer("a", 0.5, ((0.25, 0.75), None))


def test_a_record_is_rounded_and_leaves_out_classes_that_were_not_seen() -> None:
    usage = (None,) * 5000 + ((1 / 3, 2 / 3),)
    packed = stored(MixtureRecord(1, tuple(layer(str(i), 1 / 3, usage) for i in range(31))))
    assert len(packed) < 31 * 180
    back = mixture_records([json.loads(packed)])[0].layers[30]
    assert back.usage[5000] == (0.333, 0.667)
    assert back.usage[:5000] == usage[:5000]
    assert back.priors == pytest.approx((1 / 3, 2 / 3), abs=1e-6)


def test_records_without_mixtures_are_passed_over() -> None:
    assert mixture_records([{"epoch": 1}, {"epoch": 2, "mixture": []}, {"epoch": 3, "centroids": [1.0]}]) == []


@pytest.mark.parametrize("broken", [[{"name": "a"}], 5, [None], {"a": 1}])
def test_a_broken_record_is_refused(broken: object) -> None:
    with pytest.raises(ValueError, match="the section mixture of a record is broken"):
        mixture_records([{"epoch": 1, "mixture": broken}])
