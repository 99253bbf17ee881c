"""Text for a terminal: what comes from names and files must not move the cursor, change colours or hide other text."""

import re
import shutil
import sys
import textwrap
from collections.abc import Iterable
from typing import TextIO

# The control characters but for tab and line feed, and those that change the direction of writing.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")

# The password in the URL of a server.
_PASSWORD = re.compile(r"(://[^\s:/@]*:)[^\s/@]*(?=@)")


def hide_passwords(text: str) -> str:
    """The text without the passwords in its URLs.

    Example:
        >>> hide_passwords("postgresql://me:secret@host/name")
        'postgresql://me:***@host/name'
    """
    return _PASSWORD.sub(r"\1***", text)


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


def fold(text: str, columns: int) -> list[str]:
    """The text in lines of at most so many columns, broken between words; a command at its end stays whole.

    Example:
        >>> fold("still improving at the end: longtail train --resume a", 24)
        ['still improving at the', '  end:', '  longtail train --resume a']
    """
    if len(text) <= columns:
        return [text]
    before, command, rest = text.partition(": longtail ")
    if command:
        return [*fold(f"{before}:", columns), f"  longtail {rest}"]
    return textwrap.wrap(text, columns, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def show_lines(lines: Iterable[str]) -> None:
    """Print lines on stdout, folded to the width of a terminal."""
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in lines:
        show("\n".join(fold(line, columns)) if columns else line)
