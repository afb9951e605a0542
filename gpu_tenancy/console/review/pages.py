"""What all pages share, whatever they tell: how their templates are filled in, and what a browser may do on them."""

import base64
import hashlib
from functools import cache
from typing import Final

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

HOUSE: Final = "gpu_tenancy.console.review"
"""The package whose templates have the style and the parts of all pages."""


@cache
def environment(*packages: str) -> Environment:
    """Templates of packages, the first that has one of that name, and then those that all pages share.

    Args:
        packages: each with a folder `templates`.
    """
    # StrictUndefined: a name that the template has wrong must not become an empty cell.
    return Environment(
        loader=ChoiceLoader([PackageLoader(each, "templates") for each in (*packages, HOUSE)]),
        autoescape=True,  # select_autoescape goes by the name's end, and `.j2` is none that it knows
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def policy(script: str = "") -> str:
    """What a browser may do on a page: nothing but show it, and run the one script that it may have."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    scripts = f"'sha256-{digest}'" if script else "'none'"
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src {scripts}; base-uri 'none'; form-action 'none';"
        " img-src data:"
    )
