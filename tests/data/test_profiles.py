import pytest

from longtail.data.profiles import PROFILES, exponential, pareto, step


@pytest.mark.parametrize(
    ("max_count", "classes", "factor", "total", "largest", "smallest"),
    [
        (5000, 10, 100, 12_406, 5000, 50),
        (500, 100, 100, 10_847, 500, 5),
        (500, 100, 50, 12_608, 500, 10),
        (500, 100, 10, 19_573, 500, 50),
    ],
)
def test_exponential_counts_are_the_published_ones(
    max_count: int, classes: int, factor: float, total: int, largest: int, smallest: int
) -> None:
    counts = exponential(max_count, classes, factor)
    assert (counts.total, counts[0], counts[-1]) == (total, largest, smallest)
    # The formula as the CIFAR-LT papers' code writes it, with the factor upside down.
    assert list(counts) == [int(max_count * (1 / factor) ** (k / (classes - 1))) for k in range(classes)]


def test_cifar_100_lt_has_35_many_35_medium_and_30_few_classes() -> None:
    groups = exponential(500, 100, 100).groups()
    assert {group: len(members) for group, members in groups.items()} == {"many": 35, "medium": 35, "few": 30}


@pytest.mark.parametrize("name", list(PROFILES))
@pytest.mark.parametrize("factor", [1, 3, 7, 10, 49, 100])
@pytest.mark.parametrize("classes", [1, 2, 9, 100])
def test_every_profile_falls_from_the_largest_to_its_share(name: str, factor: float, classes: int) -> None:
    counts = list(PROFILES[name](4900, classes, factor))
    assert counts == sorted(counts, reverse=True)
    assert counts[0] == 4900
    assert len(counts) == classes
    if classes > 1:
        assert counts[-1] == int(4900 / factor + 1e-6)


def test_step_and_pareto_follow_their_equations() -> None:
    assert list(step(500, 4, 10)) == [500, 500, 50, 50]
    assert list(pareto(900, 3, 3)) == [900, 450, 300]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((500, 10, 0.01), r"imbalance_factor must be at least 1, got 0.01 \(did you mean 100\?\)"),
        ((500, 10, float("nan")), "imbalance_factor must be at least 1, got nan"),
        ((500, 10, 501), "at most max_count = 500, got 501: the smallest class would have no image"),
        ((500, 0, 10), "num_classes must be at least 1, got 0"),
        ((0, 10, 1), "max_count must be at least 1, got 0"),
    ],
)
def test_impossible_profiles_are_refused(arguments: tuple[int, int, float], message: str) -> None:
    for profile in PROFILES.values():
        with pytest.raises(ValueError, match=message):
            profile(*arguments)
