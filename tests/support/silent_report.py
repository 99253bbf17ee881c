"""A report of a fetch that nobody reads."""


class SilentReport:
    """Shows nothing."""

    def say(self, message: str) -> None:
        """Show nothing."""

    def advance(self, done: int, total: int | None) -> None:
        """Show nothing."""
