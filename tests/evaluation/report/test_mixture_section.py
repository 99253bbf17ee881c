from longtail.evaluation import MixtureLayer, MixtureRecord
from longtail.evaluation.report.mixture_section import collapse_remark, collapse_sentence

APART = ((0.0, 1.0), (1.0, 0.0))


def layer(name: str, heavy: float, usage: tuple[tuple[float, ...] | None, ...] = ()) -> MixtureLayer:
    return MixtureLayer(name, (heavy, 1 - heavy), APART, usage)


def history(**heavy: list[float]) -> list[MixtureRecord]:
    """A record each second epoch; by layer, the mass of the first component in each."""
    columns = zip(*heavy.values(), strict=True)
    return [
        MixtureRecord(2 * i, tuple(layer(name, p) for name, p in zip(heavy, column, strict=True)))
        for i, column in enumerate(columns, start=1)
    ]


HISTORY = history(a=[0.5, 0.6, 0.6], b=[0.5, 0.999, 0.999], c=[0.999, 0.999, 0.5])
A, B, C = HISTORY[-1].layers


def test_a_collapse_is_named_with_the_epoch_at_which_it_was_first_seen() -> None:
    assert collapse_remark(A, HISTORY) == ""
    assert collapse_remark(B, HISTORY) == "collapsed: one component has 99.9% of the mass, first seen after epoch 4"
    assert collapse_remark(B, []) == "collapsed: one component has 99.9% of the mass"
    assert collapse_remark(layer("new", 0.999), HISTORY) == "collapsed: one component has 99.9% of the mass"


def test_a_collapse_that_passed_is_named_too() -> None:
    assert collapse_remark(C, HISTORY) == "had collapsed after epoch 2, until epoch 4 at least"
    assert collapse_remark(C, HISTORY[:1]) == "had collapsed after epoch 2"


def test_all_layers_make_one_sentence() -> None:
    assert collapse_sentence([A]) == "No layer has collapsed."
    assert collapse_sentence([A, B]) == "1 of 2 layers has collapsed."
    assert collapse_sentence([B]).startswith("Every layer has collapsed: the mixture does no more")
    assert collapse_sentence([A, B, C], HISTORY) == (
        "1 of 3 layers has collapsed, first b after epoch 4. 1 had collapsed during training and recovered."
    )


def test_components_that_never_separated_are_told_from_those_that_came_together() -> None:
    same = MixtureLayer("a", (0.5, 0.5), ((0.0, 0.0), (0.0, 0.0)), ())
    still = [MixtureRecord(epoch, (same,)) for epoch in (2, 4)]
    assert "are the same and never separated: a collapsed mixture" in collapse_sentence([same], still)
    met = [MixtureRecord(2, (layer("a", 0.5),)), *still[1:]]
    assert collapse_sentence([same], met).startswith("Every layer has collapsed, first a after epoch 4")


def test_components_that_separate_late_have_not_collapsed_before() -> None:
    same = MixtureLayer("a", (0.5, 0.5), ((0.0, 0.0), (0.0, 0.0)), ())
    late = [MixtureRecord(2, (same,)), MixtureRecord(4, (layer("a", 0.5),)), MixtureRecord(6, (layer("a", 0.999),))]
    assert collapse_sentence([layer("a", 0.5)], late[:2]) == "No layer has collapsed."
    assert collapse_remark(layer("a", 0.5), late[:2]) == ""
    assert collapse_remark(layer("a", 0.999), late).endswith("first seen after epoch 6")
