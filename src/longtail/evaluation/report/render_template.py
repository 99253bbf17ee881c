"""Fill in a template of the page; Jinja2 escapes every value, so that names from strangers stay text."""

from functools import cache
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from longtail.evaluation.comparison import label
from longtail.evaluation.report.svg import percent, points, shorten


def render_template(name: str, **parts: Any) -> Markup:
    """The text of the template `name`; a part that it asks for and does not get is an error."""
    return Markup(_environment().get_template(name).render(**parts))


def read_template(name: str) -> str:
    """The text of a file in `templates/`."""
    return files(__package__).joinpath("templates", name).read_text(encoding="utf-8")


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(read_template),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": percent, "points": points, "shorten": shorten, "label": label}
    return environment
