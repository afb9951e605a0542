"""Operators that the tenancy depends on, objects that a stack takes over, and where alerts are sent."""

import re
from collections import Counter
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import AfterValidator, Field, create_model

from gpu_tenancy.model.catalogue.operators import operators
from gpu_tenancy.model.fields import OFF, Matching, Name, Seconds, Section, Shorthand, refuse
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
        "set sha256: and 64 hexadecimal digits; `tenancy cluster doctor STACK --charts` prints it",
    ),
]
"""Digest of a chart: of its archive in an HTTP repository, of its manifest in an OCI registry."""


class Operator(Section):
    """One operator. A string sets `install`."""

    install: Install | None = None
    """`here`: installed by this program; `installed`: already; `off`: not installed. Default for an operator that the
    stack needs: `here` if this program creates the nodes, `installed` in an existing cluster; else `off`."""
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
    """The pools' driver mode that the GPU Operator is configured for; default: the cloud's. Set it here in addition to
    the pools, because a change removes the driver from running nodes."""


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


class SecretKey(Section):
    """A key of a Secret in the namespace of `metrics.prometheus`, which you create: the stack has only its name."""

    secret: Name
    """Name of the Secret."""
    key: Annotated[str, Field(pattern=r"^[-._a-zA-Z0-9]{1,253}$")] = "url"
    """Key of the Secret, whose value is a URL, or a routing key of PagerDuty."""


class Receiver(SecretKey):
    """A receiver of alerts."""

    kind: Literal["slack", "pagerduty", "webhook"] = "webhook"
    """`slack`: an incoming webhook of Slack; `pagerduty`: a routing key of the Events API v2; `webhook`: any URL that
    takes Alertmanager's JSON."""


class Alerts(Section):
    """Where the Alertmanager that this program installs sends alerts; without it, nowhere."""

    receiver: Receiver | None = None
    """Receiver of the platform team: of all alerts but those in the namespace of a team with a receiver."""
    dead_mans_switch: SecretKey | None = None
    """URL of a service outside of the cluster that raises an alarm when it is no longer called: it is sent the alert
    Watchdog, which always fires, every 5 minutes."""


class ServiceLevel(Section):
    """The share of workloads that must be admitted within a time."""

    within: Annotated[Seconds, Field(ge=60, le=11 * 3600)] = 600
    """Time from submission, or from the last eviction, to admission: 1m to 11h, which Kueue's metrics can tell."""
    share: Annotated[float, Field(ge=50, le=99.9)] = 95
    """Percent of the workloads, in 30 days."""


class ServiceLevels(Section):
    """Service levels of queues, which dashboards show and alerts watch."""

    guarantee: ServiceLevel = ServiceLevel()
    """Workloads that fit into what is left of their queue's guarantee; default: 95 % within 10m."""
    waiting: dict[Name, ServiceLevel] = {}
    """All workloads of a priority class, by its name; default: none."""
