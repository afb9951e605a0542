"""Names of objects of the cluster that exist and that a stack may take over."""

import re
from collections import Counter
from typing import Annotated, Final, TypeAlias

from pydantic import AfterValidator, Field

from gpu_tenancy.model.fields import Matching, refuse

_ADOPTABLE: Final = re.compile(
    r"[A-Z][A-Za-z0-9]{0,62}(\.[a-z0-9][-a-z0-9.]{0,252})?(/[a-z0-9][-a-z0-9]{0,62})?/[a-z0-9][-a-z0-9.:]{0,252}"
)
_MOST: Final = 10_000
"""Names in one stack."""


def _distinct(names: list[str]) -> list[str]:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise refuse(f"lists {twice[0]} twice", "remove one of them")
    return names


Adoptable: TypeAlias = Annotated[
    str,
    Matching(
        _ADOPTABLE,
        "is not the name of one object",
        "use KIND/NAME or KIND/NAMESPACE/NAME, and KIND.GROUP for kinds outside of the core group, such as"
        " Namespace/ml-research or Job.batch/ml-research/train",
        schema="",
    ),
]
"""One object of the stack, such as `Namespace/ml-research`."""

Adoptables: TypeAlias = Annotated[list[Adoptable], Field(max_length=_MOST), AfterValidator(_distinct)]
