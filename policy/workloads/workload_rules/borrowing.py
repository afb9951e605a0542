"""Rules for borrowing, namespace selectors of ClusterQueues, and the version of Kueue's API."""

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from pydantic import Field

from rule_engine import ADVICE, MUST, Resource, Settings, Severity, Subject, View, format_number, kubernetes, rule
from workload_rules.objects import CLUSTER_QUEUES
from workload_rules.pods import Gpus
from workload_rules.queues import cohort_of

_CLUSTER_QUEUE: Final = "https://kueue.sigs.k8s.io/docs/concepts/cluster_queue/"
_BORROWERS: Final = kubernetes("kueue.x-k8s.io:ClusterQueue", "kueue.x-k8s.io:Cohort")
BORROWERS: Final = Subject("ClusterQueues and Cohorts", _BORROWERS, lambda resource: (resource,))


@dataclass(frozen=True, slots=True, eq=False)
class Quota:
    """The quota of one resource in one flavor, of a ClusterQueue or a Cohort.

    Attributes:
        resource: the object.
        flavor: the flavor.
        view: the resource in the flavor.
    """

    resource: Resource
    flavor: View
    view: View

    @property
    def place(self) -> str:
        """The object and the flavor."""
        return f"{self.resource.place}, flavor {self.flavor.text('name')}"


def _quotas(resource: Resource) -> Iterator[Quota]:
    for key in ("cohortName", "cohort", "parentName"):  # A patch of it is about the quotas of the object.
        resource.props.as_part().has("spec", key)
    for group in resource.props.items("spec", "resourceGroups"):
        for flavor in group.items("flavors"):
            for resource_quota in flavor.items("resources"):
                yield Quota(resource, flavor, resource_quota)


QUEUE_QUOTAS: Final = Subject("ClusterQueue and Cohort quotas", _BORROWERS, _quotas)


class BorrowSettings(Gpus):
    """Limits for borrowing."""

    maximum: dict[str, int] = Field(
        {}, description="Maximum borrowingLimit per flavor, keyed by resource name or pattern (`nvidia.com/*`)."
    )


@rule(
    "borrowing-bounded",
    rationale="Without a limit, one team can borrow all unused GPUs of the cohort for as long as its jobs run.",
    fix="Set `borrowingLimit` for each GPU resource of each flavor; 0 disables borrowing.",
    link=f"{_CLUSTER_QUEUE}#borrowinglimit",
    severity=Severity.MEDIUM,
    level=ADVICE,
    on=QUEUE_QUOTAS,
)
def borrowing_bounded(quota: Quota, settings: BorrowSettings) -> Iterator[str]:
    """A ClusterQueue or Cohort that can borrow GPUs must set a borrowingLimit."""
    resource = quota.view.text("name")
    if not settings.is_gpu(resource) or not cohort_of(quota.resource):
        return
    limit = quota.view.number("borrowingLimit")
    if limit is None:
        yield (
            f"no borrowingLimit for {resource}, so borrowing is unlimited; set borrowingLimit (0 disables borrowing)"
        )
        return
    caps = [limit for pattern, limit in settings.maximum.items() if fnmatchcase(resource, pattern)]
    if caps and limit > max(caps):
        yield (
            f"borrowingLimit {format_number(limit)} for {resource} exceeds the maximum ({max(caps)}); lower"
            " borrowingLimit"
        )


@rule(
    "cohort-named",
    rationale="Without a cohort, Kueue rejects the limits, and reclaiming has no effect.",
    fix="Set `cohortName` (ClusterQueue) or `parentName` (Cohort), or remove the limits.",
    link="https://kueue.sigs.k8s.io/docs/concepts/cohort/",
    severity=Severity.MEDIUM,
    level=MUST,
    on=BORROWERS,
)
def cohort_named(resource: Resource, _: Gpus) -> Iterator[str]:
    """A queue that borrows, lends or reclaims must belong to a cohort."""
    if cohort_of(resource):
        return
    fix = "set parentName" if resource.kind == "Cohort" else "set cohortName"
    quotas = resource.parts(QUEUE_QUOTAS)
    for key in ("borrowingLimit", "lendingLimit"):
        if any(quota.view.has(key) for quota in quotas):
            yield f"{key} is set without a cohort; {fix}, or remove {key}"
    preemption = resource.props.at("spec", "preemption")
    policies = {
        "reclaimWithinCohort": preemption.text("reclaimWithinCohort"),
        "borrowWithinCohort": preemption.text("borrowWithinCohort", "policy"),
    }
    for key, policy in policies.items():
        if policy not in {"", "Never"}:
            yield f"{key} is {policy} without a cohort; {fix}, or set {key} to Never"


@rule(
    "cluster-queue-selects",
    rationale="Without a selector the ClusterQueue is active, but matches no namespace: all workloads stay pending.",
    fix="Set `namespaceSelector`; `{}` matches all namespaces.",
    link=f"{_CLUSTER_QUEUE}#namespace-selector",
    severity=Severity.HIGH,
    level=MUST,
    on=CLUSTER_QUEUES,
)
def cluster_queue_selects(queue: Resource, _: Gpus) -> Iterator[str]:
    """A ClusterQueue must set a namespaceSelector."""
    if queue.props.at("spec", "namespaceSelector").value is None:
        yield (
            "namespaceSelector is not set, so no workload is admitted; set namespaceSelector: {} for all"
            " namespaces, or select namespaces by label"
        )


class VersionSettings(Settings):
    """Versions of Kueue's API."""

    versions: list[str] = Field(["v1beta2"], description="Allowed versions of the `kueue.x-k8s.io` API.")


@rule(
    "kueue-version",
    rationale=(
        "Older versions have different field names and are removed in upcoming Kueue releases, together with their"
        " objects."
    ),
    fix="Use v1beta2: `cohort` is renamed to `cohortName`, and `admissionChecks` to `admissionChecksStrategy`.",
    link="https://kueue.sigs.k8s.io/docs/reference/kueue.v1beta2/",
    severity=Severity.MEDIUM,
    level=MUST,
    on=Subject("Kueue objects", lambda resource: resource.group == "kueue.x-k8s.io", lambda resource: (resource,)),
)
def kueue_version(resource: Resource, settings: VersionSettings) -> Iterator[str]:
    """Kueue objects must use a supported version of the Kueue API."""
    version = resource.props.text("apiVersion", default=resource.type.split(":")[1])
    if version.rpartition("/")[2] not in settings.versions:
        yield f"apiVersion is {version}; use {', '.join(settings.versions)}"
