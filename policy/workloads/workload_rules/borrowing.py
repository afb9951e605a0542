"""Rules for what queues may borrow, whom they select, and the version of Kueue's API."""

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from pydantic import Field

from judge import ADVICE, MUST, AnyRule, Resource, Rule, Settings, Severity, Subject, View, kubernetes, shown
from workload_rules.objects import CLUSTER_QUEUES
from workload_rules.pods import Gpus
from workload_rules.queues import cohort_of

_CLUSTER_QUEUE: Final = "https://kueue.sigs.k8s.io/docs/concepts/cluster_queue/"
_BORROWERS: Final = kubernetes("kueue.x-k8s.io:ClusterQueue", "kueue.x-k8s.io:Cohort")
BORROWERS: Final = Subject("cluster queues and cohorts", _BORROWERS, lambda resource: (resource,))


@dataclass(frozen=True, slots=True, eq=False)
class Quota:
    """A queue's, or a cohort's, quota of one resource in one flavor.

    Attributes:
        flavor: the flavor, which holds the name.
        view: the resource in it.
    """

    resource: Resource
    flavor: View
    view: View

    @property
    def place(self) -> str:
        """The object, and which flavor."""
        return f"{self.resource.place}, flavor {self.flavor.text('name')}"


def _quotas(resource: Resource) -> Iterator[Quota]:
    for group in resource.props.items("spec", "resourceGroups"):
        for flavor in group.items("flavors"):
            for each in flavor.items("resources"):
                yield Quota(resource, flavor, each)


QUEUE_QUOTAS: Final = Subject("quotas of queues", _BORROWERS, _quotas)


class BorrowSettings(Gpus):
    """How much may be borrowed."""

    most: dict[str, int] = Field(
        {}, description="The highest borrowingLimit of one flavor, by resource name or pattern (`nvidia.com/*`)."
    )


def _bounded(quota: Quota, settings: BorrowSettings) -> Iterator[str]:
    resource = quota.view.text("name")
    if not settings.is_gpu(resource) or not cohort_of(quota.resource):
        return
    limit = quota.view.number("borrowingLimit")
    if limit is None:
        yield f"may borrow {resource} without bound; write a borrowingLimit, 0 included"
        return
    caps = [most for pattern, most in settings.most.items() if fnmatchcase(resource, pattern)]
    if caps and limit > max(caps):
        yield f"may borrow {shown(limit)} {resource}, and {max(caps)} is the most; lower borrowingLimit"


BOUNDED: Final = Rule(
    name="borrowing-bounded",
    says="A queue or a cohort that can borrow GPUs has a limit for it.",
    why="Without one, a single team can hold every GPU that others leave, for as long as its jobs run.",
    mend="Write `borrowingLimit` for each GPU resource of each flavor; 0 borrows nothing.",
    link=f"{_CLUSTER_QUEUE}#borrowinglimit",
    severity=Severity.MEDIUM,
    level=ADVICE,
    on=QUEUE_QUOTAS,
    judge=_bounded,
    settings=BorrowSettings,
)


def _cohort_named(resource: Resource, _: Gpus) -> Iterator[str]:
    if cohort_of(resource):
        return
    mend = "write parentName" if resource.kind == "Cohort" else "write cohortName"
    quotas = resource.parts(QUEUE_QUOTAS)
    for key in ("borrowingLimit", "lendingLimit"):
        if any(each.view.has(key) for each in quotas):
            yield f"has a {key} and no cohort to share with; {mend}, or take it out"
    preemption = resource.props.at("spec", "preemption")
    policies = {
        "reclaimWithinCohort": preemption.text("reclaimWithinCohort"),
        "borrowWithinCohort": preemption.text("borrowWithinCohort", "policy"),
    }
    for key, policy in policies.items():
        if policy not in {"", "Never"}:
            yield f"has {key} {policy} and no cohort to share with; {mend}, or Never"


COHORT_NAMED: Final = Rule(
    name="cohort-named",
    says="A queue that borrows, lends or reclaims names its cohort.",
    why="Without one the limits are refused, and reclaiming does nothing: the queue stands alone.",
    mend="Write `cohortName` in a ClusterQueue, `parentName` in a Cohort, or take the limits out.",
    link="https://kueue.sigs.k8s.io/docs/concepts/cohort/",
    severity=Severity.MEDIUM,
    level=MUST,
    on=BORROWERS,
    judge=_cohort_named,
    settings=Gpus,
)


def _selects(queue: Resource, _: Gpus) -> Iterator[str]:
    if queue.props.at("spec", "namespaceSelector").value is None:
        yield "selects no namespace, so it admits nothing; write namespaceSelector: {} for all, or labels of some"


SELECTS: Final = Rule(
    name="cluster-queue-selects",
    says="A ClusterQueue says from which namespaces it takes work.",
    why="One without a selector is active, and every workload waits: the namespace does not match.",
    mend="Write `namespaceSelector`; `{}` takes work of all namespaces.",
    link=f"{_CLUSTER_QUEUE}#namespace-selector",
    severity=Severity.HIGH,
    level=MUST,
    on=CLUSTER_QUEUES,
    judge=_selects,
    settings=Gpus,
)


class VersionSettings(Settings):
    """Versions of Kueue's API."""

    versions: list[str] = Field(["v1beta2"], description="Versions of `kueue.x-k8s.io` in which objects are written.")


def _version(resource: Resource, settings: VersionSettings) -> Iterator[str]:
    written = resource.props.text("apiVersion", default=resource.type.split(":")[1])
    if written.rpartition("/")[2] not in settings.versions:
        yield f"is written in {written}; write it in {', '.join(settings.versions)}"


VERSION: Final = Rule(
    name="kueue-version",
    says="Kueue's objects are written in a version of its API that stays.",
    why="Older versions name fields otherwise and go with the next releases, and the objects with them.",
    mend="Write v1beta2: `cohort` is `cohortName` there, `admissionChecks` is `admissionChecksStrategy`.",
    link="https://kueue.sigs.k8s.io/docs/reference/kueue.v1beta2/",
    severity=Severity.MEDIUM,
    level=MUST,
    on=Subject("Kueue's objects", lambda resource: resource.group == "kueue.x-k8s.io", lambda resource: (resource,)),
    judge=_version,
    settings=VersionSettings,
)

RULES: Final[tuple[AnyRule, ...]] = (BOUNDED, COHORT_NAMED, SELECTS, VERSION)
