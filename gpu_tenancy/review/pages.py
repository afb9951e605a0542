"""Template environment and Content Security Policy of all HTML pages."""

import base64
import hashlib
from functools import cache
from typing import Final

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from gpu_tenancy.base.characters import visible

_LINES: Final = "\n\t\u200c\u200d"
HOUSE: Final = "gpu_tenancy.review"
"""Package whose templates have the style and macros of all pages."""


@cache
def environment(*packages: str) -> Environment:
    """Templates of packages, in order of precedence, and the shared ones.

    Args:
        packages: packages with a folder `templates`.
    """
    # StrictUndefined: a misspelled name in a template must not become an empty cell.
    return Environment(
        loader=ChoiceLoader([PackageLoader(package, "templates") for package in (*packages, HOUSE)]),
        finalize=_finalized,
        autoescape=True,  # select_autoescape decides by the extension and does not know `.j2`
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _finalized(value: object) -> object:
    """A value as the page shows it: text without invisible characters; markup of this program as it is."""
    return visible(value, _LINES) if type(value) is str else value


def policy(script: str = "") -> str:
    """Content Security Policy of a page: no external content, and only the given inline script."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    scripts = f"'sha256-{digest}'" if script else "'none'"
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src {scripts}; base-uri 'none'; form-action 'none';"
        " img-src data:"
    )
