"""Text for a terminal: what comes from names and files must not move the cursor, change colours or hide other text."""

import re
from typing import TextIO

# The control characters but for tab and line feed, and those that change the direction of writing.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    r"""The text with control characters spelt out, as Python writes them.

    Example:
        >>> printable("a\x1b[2Jb\tc")
        'a\\x1b[2Jb\tc'
    """
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def show(text: object = "", *, file: TextIO | None = None, end: str = "\n") -> None:
    """`print`, of printable text; all that the command line shows goes through here, or through its screens."""
    print(printable(str(text)), file=file, end=end)
