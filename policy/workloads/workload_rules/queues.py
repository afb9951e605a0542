"""Rules for Kueue's queues, cohorts and flavors, for borrowing, and for the version of Kueue's API."""

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from pydantic import Field

from rule_engine import Part, Resource, Settings, Stack, Subject, View, format_number, kubernetes, rule
from workload_rules.jobs import Work
from workload_rules.objects import CLUSTER_QUEUES, COHORTS, FLAVORS, LOCAL_QUEUES, QUEUE_NAME, is_missing, name, objects
from workload_rules.pods import PODS, Gpus, Tenants, holds_pods, namespace_of


def cohort_of(resource: Resource) -> str:
    """The cohort of a ClusterQueue (`cohort` in v1beta1), or the parent of a Cohort; empty without."""
    spec = resource.props.at("spec")
    return spec.text("parentName") if resource.kind == "Cohort" else spec.text("cohortName") or spec.text("cohort")


@dataclass(frozen=True, slots=True, eq=False)
class Reference(Part):
    """A reference from one Kueue object to another, in a map of it.

    Attributes:
        key: the key of the name in this map.
        to: the kind of the referenced object.
    """

    key: str = ""
    to: str = ""


def _references(resource: Resource) -> Iterator[Reference]:
    spec = resource.props.at("spec")
    if resource.kind == "LocalQueue":
        yield Reference(resource, spec, key="clusterQueue", to="ClusterQueue")
        return
    for key in ("parentName",) if resource.kind == "Cohort" else ("cohortName", "cohort"):
        if spec.has(key):
            yield Reference(resource, spec, key=key, to="Cohort")
    for group in spec.items("resourceGroups"):
        for flavor in group.items("flavors"):
            yield Reference(resource, flavor, key="name", to="ResourceFlavor")


REFERENCES: Final = Subject(
    "references of Kueue objects",
    kubernetes(*(f"kueue.x-k8s.io:{kind}" for kind in ("LocalQueue", "ClusterQueue", "Cohort"))),
    _references,
)
_KINDS: Final = {"ClusterQueue": CLUSTER_QUEUES, "Cohort": COHORTS, "ResourceFlavor": FLAVORS}


class ReferenceSettings(Settings):
    """Kueue objects created outside this stack; kinds that the stack does not contain are not checked."""

    queues: list[str] = Field([])
    """ClusterQueues created outside this stack, as patterns."""
    cohorts: list[str] = Field([])
    """Cohorts created outside this stack, as patterns."""
    flavors: list[str] = Field([])
    """ResourceFlavors created outside this stack, as patterns."""


@rule("queue-references", REFERENCES)
def queue_references(reference: Reference, settings: ReferenceSettings, stack: Stack) -> Iterator[str]:
    """Queues must reference ClusterQueues, Cohorts and ResourceFlavors that exist."""
    referenced = reference.view.text(reference.key)
    external = {"ClusterQueue": settings.queues, "Cohort": settings.cohorts, "ResourceFlavor": settings.flavors}
    if referenced and is_missing(stack, _KINDS[reference.to], (name, referenced), external[reference.to]):
        path = ".".join((*reference.view.path, reference.key))
        yield (
            f"{path} references {reference.to} {referenced}, which does not exist in this stack; correct the name or"
            " create it"
        )


class LocalSettings(Tenants):
    """LocalQueues created outside this stack."""

    queues: list[str] = Field([])
    """LocalQueues created outside this stack, `namespace/name`, as patterns. If this list is empty and the stack has
    none, names are not checked."""


def _full_name(queue: Resource) -> str:
    return f"{namespace_of(queue)}/{name(queue)}"


@rule("queue-exists", Subject("workloads", holds_pods, lambda resource: (resource,)))
def queue_exists(workload: Resource, settings: LocalSettings, stack: Stack) -> Iterator[str]:
    """The queue that a workload names must exist in its namespace."""
    namespace = namespace_of(workload)
    pods = workload.parts(PODS)
    names = {Work(workload, workload.props).queue, *(pod.meta.text("labels", QUEUE_NAME) for pod in pods)} - {""}
    for queue_name in sorted(names):
        if is_missing(stack, LOCAL_QUEUES, (_full_name, f"{namespace}/{queue_name}"), settings.queues):
            yield (
                f"references queue {queue_name}, but namespace {namespace} has no LocalQueue with that name; correct"
                f" {QUEUE_NAME} or create the LocalQueue"
            )


BORROWERS: Final = objects("ClusterQueues and Cohorts", "kueue.x-k8s.io:ClusterQueue", "kueue.x-k8s.io:Cohort")


@dataclass(frozen=True, slots=True, eq=False)
class Quota:
    """The quota of one resource in one flavor, of a ClusterQueue or a Cohort; `view` is the resource in the flavor."""

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


QUEUE_QUOTAS: Final = Subject("ClusterQueue and Cohort quotas", BORROWERS.selects, _quotas)


class BorrowSettings(Gpus):
    """Limits for borrowing."""

    maximum: dict[str, int] = Field({})
    """Maximum borrowingLimit per flavor, keyed by resource name or pattern (`nvidia.com/*`)."""


@rule("borrowing-bounded", QUEUE_QUOTAS)
def borrowing_bounded(quota: Quota, settings: BorrowSettings) -> Iterator[str]:
    """A ClusterQueue or Cohort that can borrow GPUs must set a borrowingLimit."""
    resource = quota.view.text("name")
    if not settings.is_gpu(resource) or not cohort_of(quota.resource):
        return
    limit = quota.view.number("borrowingLimit")
    if limit is None:
        yield f"no borrowingLimit for {resource}, so borrowing is unlimited; set borrowingLimit (0 disables borrowing)"
        return
    caps = [limit for pattern, limit in settings.maximum.items() if fnmatchcase(resource, pattern)]
    if caps and limit > max(caps):
        yield (
            f"borrowingLimit {format_number(limit)} for {resource} exceeds the maximum ({max(caps)}); lower"
            " borrowingLimit"
        )


@rule("cohort-named", BORROWERS)
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


class VersionSettings(Settings):
    """Versions of Kueue's API."""

    versions: list[str] = Field(["v1beta2"])
    """Allowed versions of the `kueue.x-k8s.io` API."""


@rule(
    "kueue-version",
    Subject("Kueue objects", lambda resource: resource.group == "kueue.x-k8s.io", lambda resource: (resource,)),
)
def kueue_version(resource: Resource, settings: VersionSettings) -> Iterator[str]:
    """Kueue objects must use a supported version of the Kueue API."""
    version = resource.props.text("apiVersion", default=resource.type.split(":")[1])
    if version.rpartition("/")[2] not in settings.versions:
        yield f"apiVersion is {version}; use {', '.join(settings.versions)}"
