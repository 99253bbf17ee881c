"""Whatever a setting is set to, it is taken or refused in words."""

from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.robustness.broken_settings import head_keys, method_keys, setting_keys
from longtail._errors import UsageError
from longtail.heads import HEADS
from longtail.methods import METHODS
from longtail.training.run_config import RunConfig, build_config, check_head_settings, check_method_settings

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
KEYS = sorted({*setting_keys(), "model", "optim", "method", "head", "mixing"})


def read_back(config: RunConfig) -> RunConfig:
    """The run of the settings of a run, which are never refused."""
    try:
        return build_config(config.as_dict())
    except UsageError as error:
        raise AssertionError(f"taken, and then refused: {error}") from error


@settings(max_examples=40, deadline=None)
@given(st.lists(VALUES, min_size=7, max_size=7))
def test_any_value_of_any_setting_of_a_run(values: list[object]) -> None:
    for number, key in enumerate(KEYS):
        group, dot, name = key.partition(".")
        value = values[number % len(values)]
        with suppress(UsageError):
            config = build_config({"method": {"name": "erm"}} | {group: {name: value} if dot else value})
            # What is taken is written and read back: it must be taken again.
            assert read_back(config) == config


@settings(max_examples=20, deadline=None)
@given(st.lists(VALUES, min_size=7, max_size=7))
def test_any_value_of_any_argument_of_a_method_or_head(values: list[object]) -> None:
    for unit, keys in [*((name, method_keys(name)) for name in METHODS), *((name, head_keys(name)) for name in HEADS)]:
        for number, key in enumerate(keys):
            group, _, name = key.partition(".")
            chosen = {"name": unit, name: values[number % len(values)]}
            with suppress(UsageError):
                if group == "method":
                    check_method_settings(METHODS[unit], chosen, "")
                else:
                    check_head_settings(HEADS, chosen)
