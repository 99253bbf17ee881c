"""Durations as people write them: 90s, 10m, 1h30m."""

import re

from longtail._errors import UsageError

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_duration(value: object, name: str) -> float | None:
    """Minutes; a bare number is minutes already, None and "auto" are None.

    Args:
        value: a number of minutes, or text such as "10m".
        name: of the setting, for the error.

    Example:
        >>> parse_duration("1h30m", "time"), parse_duration("45s", "time"), parse_duration(3, "time")
        (90.0, 0.75, 3.0)
    """
    if value is None or value == "auto":
        return None
    text = str(value).strip().lower().replace(" ", "")
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd])", text)
    if isinstance(value, int | float) and not isinstance(value, bool):
        minutes = float(value)
    elif parts and "".join(number + unit for number, unit in parts) == text:
        minutes = sum(float(number) * _SECONDS[unit] for number, unit in parts) / 60
    else:
        raise UsageError(f"{name} must be a duration, got {value!r}", "", "write 90s, 10m or 1h30m")
    if not 0 < minutes < 60 * 24 * 365:
        raise UsageError(
            f"{name} must be more than 0 and less than a year, got {value!r}", "", "write 90s, 10m or 1h30m"
        )
    return minutes


def format_duration(seconds: float) -> str:
    """Seconds as a person says them.

    Example:
        >>> format_duration(42), format_duration(190), format_duration(7260)
        ('42 s', '3 min 10 s', '2 h 1 min')
    """
    whole = max(0, round(seconds))
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        minutes, rest = divmod(whole, 60)
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, rest = divmod(whole // 60, 60)
    return f"{hours} h {rest} min" if rest else f"{hours} h"
