"""Namespaces that are reserved on every cluster, from `namespaces.yaml` and the operators."""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Final

from pydantic import Field

from gpu_tenancy.model.catalogue.operators import charts
from gpu_tenancy.model.catalogue.rows import Fact, read_rows

_PREFIX: Final = "-"
"""End of a name that is a prefix; no namespace ends with it."""
_MONITORING: Final = "monitoring"
"""Namespace of operators which tenants of other programs have too."""


class ReservedNamespaces(Fact):
    """Namespaces of one product.

    Attributes:
        owner: the product.
        names: names, and prefixes that end in `-`.
        system: exact names that policy packs do not check as a tenant's.
    """

    owner: Annotated[str, Field(min_length=1)]
    names: Annotated[list[Annotated[str, Field(pattern=r"^[a-z][-a-z0-9]*$")]], Field(min_length=1)]
    system: tuple[str, ...] = ()


@cache
def _rows() -> list[ReservedNamespaces]:
    return read_rows("namespaces", list[ReservedNamespaces])


def system_namespaces() -> list[str]:
    """Exact names of namespaces that do not belong to a tenant, in alphabetical order."""
    operators = {chart.namespace for chart in charts().values()} - {_MONITORING}
    return sorted(operators | {name for row in _rows() for name in row.system})


@cache
def reserved_namespaces() -> Mapping[str, str]:
    """The owner of each reserved name and prefix."""
    operators = {chart.namespace: f"operator {name}" for name, chart in reversed(tuple(charts().items()))}
    return operators | {name: row.owner for row in _rows() for name in row.names}


def owner_of(namespace: str) -> str | None:
    """The owner of a reserved namespace; None for any other."""
    names = reserved_namespaces()
    prefixes = (owner for name, owner in names.items() if name.endswith(_PREFIX) and namespace.startswith(name))
    return names.get(namespace) or next(prefixes, None)
