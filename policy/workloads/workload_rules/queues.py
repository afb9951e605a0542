"""Rules for Kueue's queues, cohorts and flavors."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pydantic import Field

from rule_engine import MUST, Part, Resource, Settings, Severity, Stack, Subject, View, kubernetes, located_at, rule
from workload_rules.objects import (
    CLUSTER_QUEUES,
    COHORTS,
    FLAVORS,
    LOCAL_QUEUES,
    QUEUE_NAME,
    always,
    is_missing,
    name,
)
from workload_rules.pods import POD_PARTS, PODS, Gpus, Pod, TenantGpus, Tenants, holds_pods, namespace_of

_KUEUE: Final = "https://kueue.sigs.k8s.io/docs/concepts"


def cohort_of(resource: Resource) -> str:
    """The cohort of a ClusterQueue (`cohort` in v1beta1), or the parent of a Cohort; empty without."""
    spec = resource.props.at("spec")
    return spec.text("parentName") if resource.kind == "Cohort" else spec.text("cohortName") or spec.text("cohort")


@dataclass(frozen=True, slots=True, eq=False)
class Reference(Part):
    """A reference from one Kueue object to another.

    Attributes:
        holder: the map that contains the name.
        key: the key of the name in this map.
        to: the kind of the referenced object.
    """

    holder: View
    key: str
    to: str


def _references(resource: Resource) -> Iterator[Reference]:
    spec = resource.props.at("spec")
    if resource.kind == "LocalQueue":
        yield Reference(resource, spec, "clusterQueue", "ClusterQueue")
        return
    for key in ("parentName",) if resource.kind == "Cohort" else ("cohortName", "cohort"):
        if spec.has(key):
            yield Reference(resource, spec, key, "Cohort")
    for group in spec.items("resourceGroups"):
        for flavor in group.items("flavors"):
            yield Reference(resource, flavor, "name", "ResourceFlavor")


REFERENCES: Final = Subject(
    "references of Kueue objects",
    kubernetes("kueue.x-k8s.io:LocalQueue", "kueue.x-k8s.io:ClusterQueue", "kueue.x-k8s.io:Cohort"),
    _references,
)
_KINDS: Final = {"ClusterQueue": CLUSTER_QUEUES, "Cohort": COHORTS, "ResourceFlavor": FLAVORS}


class ReferenceSettings(Settings):
    """Kueue objects created outside this stack; kinds that the stack does not contain are not checked."""

    queues: list[str] = Field([], description="ClusterQueues created outside this stack, as patterns.")
    cohorts: list[str] = Field([], description="Cohorts created outside this stack, as patterns.")
    flavors: list[str] = Field([], description="ResourceFlavors created outside this stack, as patterns.")


@rule(
    "queue-references",
    rationale="Kueue accepts an unknown name without an error, but never admits workloads of such a queue.",
    fix="Correct the name, create the object, or list it in the settings if it is created elsewhere.",
    link=f"{_KUEUE}/local_queue/",
    severity=Severity.HIGH,
    level=MUST,
    on=REFERENCES,
)
def queue_references(reference: Reference, settings: ReferenceSettings, stack: Stack) -> Iterator[str]:
    """Queues must reference ClusterQueues, Cohorts and ResourceFlavors that exist."""
    referenced = reference.holder.text(reference.key)
    external = {"ClusterQueue": settings.queues, "Cohort": settings.cohorts, "ResourceFlavor": settings.flavors}
    if referenced and is_missing(stack, _KINDS[reference.to], (name, referenced), external[reference.to]):
        path = ".".join((*reference.holder.path, reference.key))
        yield (
            f"{path} references {reference.to} {referenced}, which does not exist in this stack; correct the name or"
            " create it"
        )


class _Visited:
    """What is known of the Cohorts above a Cohort, so that each is visited once for all.

    Attributes:
        ended: names of Cohorts from which the way up ends at a root or leads into a cycle that they are not in.
        cycles: for each Cohort in a cycle, all of the cycle from it on.
    """

    def __init__(self) -> None:
        self.ended: set[str] = set()
        self.cycles: dict[str, list[str]] = {}

    def add(self, path: list[str], parent: str) -> None:
        """Adds the way up from a Cohort, and the parent at which it ended."""
        start = path.index(parent) if parent in path else len(path)
        self.ended.update(path[:start])
        cycle = path[start:]
        for index, member in enumerate(cycle):
            self.cycles[member] = cycle[index:] + cycle[:index]


@rule(
    "cohorts-are-a-tree",
    rationale="Kueue accepts a cycle of cohorts without an error, but admits nothing in any of them.",
    fix="Remove `parentName` from the cohort that should be the root.",
    link=f"{_KUEUE}/cohort/",
    severity=Severity.HIGH,
    level=MUST,
    on=COHORTS,
)
def cohorts_are_a_tree(cohort: Resource, _: Gpus, stack: Stack) -> Iterator[str]:
    """Cohorts must not form a cycle."""
    visited = stack.once(_Visited, _Visited)
    own_name = name(cohort)
    if not own_name:  # The API server generates its name, so no Cohort has it as its parent.
        return
    path = {own_name: None}
    parent = cohort_of(cohort)
    while parent and parent not in path and parent not in visited.ended and parent not in visited.cycles:
        path[parent] = None
        parent_cohort = stack.first(COHORTS, always, (name, parent))
        if parent_cohort is None:
            break
        with located_at(parent_cohort):
            parent = cohort_of(parent_cohort)
    if own_name not in visited.cycles:
        visited.add(list(path), parent)
    if own_name in visited.cycles:
        yield f"cohort cycle: {' → '.join([*visited.cycles[own_name], own_name])}; remove one parentName"


QUEUED: Final = Subject("workloads", holds_pods, lambda resource: (resource,))


def _queue_of(workload: Resource) -> str:
    """The LocalQueue of a workload, or of a CronJob's jobs, which do not get its own labels; empty without."""
    template = ("spec", "jobTemplate") if workload.kind == "CronJob" else ()
    return workload.props.text(*template, "metadata", "labels", QUEUE_NAME)


class LocalSettings(Tenants):
    """LocalQueues created outside this stack."""

    queues: list[str] = Field(
        [],
        description=(
            "LocalQueues created outside this stack, `namespace/name`, as patterns. If this list is empty and the"
            " stack has none, names are not checked."
        ),
    )


def _full_name(queue: Resource) -> str:
    return f"{namespace_of(queue)}/{name(queue)}"


@rule(
    "queue-exists",
    rationale="Otherwise the workload stays pending, and only the Workload's status shows why.",
    fix=f"Correct the label `{QUEUE_NAME}`, or create the LocalQueue in that namespace.",
    link="https://kueue.sigs.k8s.io/docs/tasks/run/jobs/",
    severity=Severity.HIGH,
    level=MUST,
    on=QUEUED,
)
def queue_exists(workload: Resource, settings: LocalSettings, stack: Stack) -> Iterator[str]:
    """The queue that a workload names must exist in its namespace."""
    namespace = namespace_of(workload)
    pods = workload.parts(PODS)
    names = {_queue_of(workload), *(pod.meta.text("labels", QUEUE_NAME) for pod in pods)} - {""}
    for queue_name in sorted(names):
        if is_missing(stack, LOCAL_QUEUES, (_full_name, f"{namespace}/{queue_name}"), settings.queues):
            yield (
                f"references queue {queue_name}, but namespace {namespace} has no LocalQueue with that name; correct"
                f" {QUEUE_NAME} or create the LocalQueue"
            )


@rule(
    "queue-covers-gpus",
    rationale="Kueue never admits a workload that requests a resource without quota in its queue.",
    fix="Add the resource to the ClusterQueue's `coveredResources` and to each of its flavors.",
    link=f"{_KUEUE}/cluster_queue/#resource-groups",
    severity=Severity.HIGH,
    level=MUST,
    on=POD_PARTS,
)
def queue_covers_gpus(pod: Pod, settings: TenantGpus, stack: Stack) -> Iterator[str]:
    """A workload's queue must cover the GPUs that the workload requests."""
    queue_name = _queue_of(pod.resource) or pod.meta.text("labels", QUEUE_NAME)
    if not queue_name:
        return
    local = stack.first(LOCAL_QUEUES, always, (_full_name, f"{pod.namespace}/{queue_name}"))
    if local is None:
        return
    with located_at(local):
        target = local.props.text("spec", "clusterQueue")
    queue = stack.first(CLUSTER_QUEUES, always, (name, target))
    if queue is None:
        return
    with located_at(queue):
        covered = {
            covered_resource
            for group in queue.props.items("spec", "resourceGroups")
            for covered_resource in group.texts("coveredResources")
        }
    for resource in pod.gpus(settings):
        if resource not in covered:
            yield (
                f"requests {resource}, which ClusterQueue {target} does not cover; add it to coveredResources with"
                " a quota, or use another queue"
            )
