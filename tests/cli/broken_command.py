"""Commands that fail, for the tests of the command line."""


def command() -> None:
    raise ZeroDivisionError("on purpose")


def interrupted() -> None:
    raise KeyboardInterrupt
