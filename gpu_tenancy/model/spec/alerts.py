"""Where alerts are sent, and the service levels that some of them watch."""

from typing import Annotated, Literal

from pydantic import Field

from gpu_tenancy.model.fields import Name, Seconds, Section


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
