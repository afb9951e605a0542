"""Template environment and Content Security Policy of all pages."""

import base64
import hashlib
from functools import cache
from typing import Final

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from gpu_tenancy.base.characters import visible

_LINES: Final = "\n\t\u200c\u200d"
_HOUSE: Final = "gpu_tenancy.pages"
"""Package whose templates have the style and macros of all pages."""

FOLD: Final = 30
"""Rows and teams beyond which a table or cohort starts collapsed, and jobs beyond which each step does."""


@cache
def environment(*packages: str) -> Environment:
    """Templates of packages, in order of precedence, and the shared ones.

    Args:
        packages: packages with a folder `templates`.
    """
    # StrictUndefined: a misspelled name in a template must not become an empty cell.
    return Environment(
        loader=ChoiceLoader([PackageLoader(package, "templates") for package in (*packages, _HOUSE)]),
        finalize=_finalized,
        autoescape=True,  # select_autoescape decides by the extension and does not know `.j2`
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _finalized(value: object) -> object:
    """A value as the page shows it: text without invisible characters; markup of this program as it is."""
    return visible(value, _LINES) if type(value) is str else value


def policy(script: str = "", *more: str) -> str:
    """Content Security Policy of a page: no external content, and only the given inline script.

    Args:
        script: without it, the page has none.
        more: further directives.
    """
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    scripts = f"'sha256-{digest}'" if script else "'none'"
    return "; ".join(
        (
            "default-src 'none'",
            "style-src 'unsafe-inline'",
            f"script-src {scripts}",
            "base-uri 'none'",
            "form-action 'none'",
            "img-src data:",
            *more,
        )
    )
