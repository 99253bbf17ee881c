"""The command `longtail`."""

import sys


def main() -> None:
    """Run the command `longtail`."""
    sys.exit("longtail: no command is available yet")
