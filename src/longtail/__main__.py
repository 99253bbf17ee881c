"""`python -m longtail` is the command `longtail`; torchrun needs this form."""

from longtail.cli import main

if __name__ == "__main__":
    main()
