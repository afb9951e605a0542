"""Operators that the tenancy depends on: installed here, installed already, or off.

Their keys are those of the catalogue.
"""

import re
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, create_model

from gpu_tenancy.model.catalogue.operators import operators
from gpu_tenancy.model.fields import OFF, Matching, Section, Shorthand
from gpu_tenancy.model.spec.pools import Driver

Install: TypeAlias = Annotated[Literal["here", "installed", "off"], OFF]
"""`here`: this program installs it. `installed`: it is installed already. `off`: not installed."""

ChartVersion: TypeAlias = Annotated[
    str,
    Matching(
        re.compile(r"v?\d+\.\d+\.\d+(-(alpha|beta|rc)[.-]?\d*)?"),
        "is not a fixed chart version, so clusters may run different versions",
        "set one release, such as 1.2.3 (not a range, 'latest' or a branch)",
    ),
]
"""One release of a chart; ranges and branches are not reproducible."""

ChartDigest: TypeAlias = Annotated[
    str,
    Matching(
        re.compile(r"sha256:[0-9a-f]{64}"),
        "is not a digest of a chart",
        "set sha256: and 64 hexadecimal digits; `tenancy cluster charts` prints it",
    ),
]
"""Digest of a chart: of its archive in an HTTP repository, of its manifest in an OCI registry."""


class Operator(Section):
    """One operator. A string sets `install`."""

    install: Install | None = None
    """`here`: installed by this program; `installed`: installed already; `off`: not installed. Default for an operator
    that the stack needs: `here` if this program creates the nodes, `installed` in an existing cluster; else `off`."""
    version: ChartVersion | None = None
    """Version of its chart; default: the catalogue's (`gpu_tenancy/model/catalogue/operators/`)."""
    digest: ChartDigest | None = None
    """Digest of its chart: of the archive in an HTTP repository, of the manifest in an OCI registry. Default: the
    catalogue's, for the version of the catalogue; another version has none."""
    values: dict[str, Any] = {}
    """Helm values, merged over those derived from the stack; each key must exist in the chart."""


OperatorEntry: TypeAlias = Annotated[Operator, Shorthand(str, ("install",)), OFF]
"""An operator: a string, or a mapping."""


class _Driver(Section):
    driver: Driver | None = None
    """The pools' driver mode that the GPU Operator is configured for; default: the cloud's default mode. It must be set
    here in addition to the pools, because a change removes the driver from running nodes."""


def _with_keys() -> type[_Driver]:
    keys: dict[str, Any] = {
        name: (OperatorEntry, Field(Operator(), description=operator.description))
        for name, operator in operators().items()
    }
    # Pydantic would search all modules for the source of this class.
    return create_model("_Keys", __base__=_Driver, __cls_kwargs__={"use_attribute_docstrings": False}, **keys)


# pyrefly: ignore[invalid-inheritance]
class Operators(_with_keys()):
    """Operators by name: `here`, `installed`, `off`, or `{install, version, values}`."""

    def of(self, name: str) -> Operator:
        """The section of an operator, by its field."""
        return getattr(self, name)
