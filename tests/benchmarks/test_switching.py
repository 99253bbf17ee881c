"""What a switch costs, by accuracies whose answer is plain."""

from benchmarks.switching import switching


def test_the_lowest_accuracy_after_half_of_the_training_and_the_epoch_that_makes_up_for_it() -> None:
    assert switching([0.1, 0.2, 0.5, 0.4, 0.2, 0.5]) == {"before": 0.5, "lowest": 0.2, "again": 6}


def test_what_is_never_made_up_for_has_no_epoch() -> None:
    assert switching([0.5, 0.1])["again"] is None
