"""Show the `Example:` of a docstring as code: the reader of docstrings knows that section as `Examples:` alone."""

from typing import Any

import griffe


class DocstringExamples(griffe.Extension):
    """Rename the section wherever it stands."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:  # noqa: ARG002 # griffe's
        """Of each module, class, function and attribute."""
        if obj.docstring:
            obj.docstring.value = obj.docstring.value.replace("\nExample:\n", "\nExamples:\n")
