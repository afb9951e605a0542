"""Rules for Kueue's queues, cohorts and flavors."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pydantic import Field

from judge import MUST, AnyRule, Resource, Rule, Settings, Severity, Stack, Subject, View, elsewhere, kubernetes
from workload_rules.objects import (
    CLUSTER_QUEUES,
    COHORTS,
    FLAVORS,
    LOCAL_QUEUES,
    QUEUE_NAME,
    always,
    missing,
    name,
    objects,
)
from workload_rules.pods import BATCH, PODS, PODS_IN, Gpus, Pod, TenantGpus, Tenants, namespace

_KUEUE: Final = "https://kueue.sigs.k8s.io/docs/concepts"


def cohort_of(resource: Resource) -> str:
    """The cohort of a ClusterQueue, or the parent of a Cohort; empty where there is none (`cohort` in v1beta1)."""
    spec = resource.props.at("spec")
    return spec.text("parentName") if resource.kind == "Cohort" else spec.text("cohortName") or spec.text("cohort")


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """A place where one of Kueue's objects names another.

    Attributes:
        resource: the object.
        holder: the part of it that holds the name.
        key: under which it is held.
        to: the kind that is named.
    """

    resource: Resource
    holder: View
    key: str
    to: str

    @property
    def place(self) -> str:
        """The object."""
        return self.resource.place


def _references(resource: Resource) -> Iterator[Reference]:
    spec = resource.props.at("spec")
    if resource.kind == "LocalQueue":
        yield Reference(resource, spec, "clusterQueue", "ClusterQueue")
        return
    for key in ("parentName",) if resource.kind == "Cohort" else ("cohortName", "cohort"):
        yield Reference(resource, spec, key, "Cohort")
    for group in spec.items("resourceGroups"):
        for flavor in group.items("flavors"):
            yield Reference(resource, flavor, "name", "ResourceFlavor")


REFERENCES: Final = Subject(
    "what Kueue's objects name",
    kubernetes("kueue.x-k8s.io:LocalQueue", "kueue.x-k8s.io:ClusterQueue", "kueue.x-k8s.io:Cohort"),
    _references,
)
_KINDS: Final = {"ClusterQueue": CLUSTER_QUEUES, "Cohort": COHORTS, "ResourceFlavor": FLAVORS}


class ReferenceSettings(Settings):
    """Kueue's objects that are made elsewhere, as patterns; a kind of which the stack makes none is not judged."""

    queues: list[str] = Field([], description="ClusterQueues made elsewhere, as patterns.")
    cohorts: list[str] = Field([], description="Cohorts made elsewhere, as patterns.")
    flavors: list[str] = Field([], description="ResourceFlavors made elsewhere, as patterns.")


def _named(reference: Reference, settings: ReferenceSettings, stack: Stack) -> Iterator[str]:
    wanted = reference.holder.text(reference.key)
    elsewhere = {"ClusterQueue": settings.queues, "Cohort": settings.cohorts, "ResourceFlavor": settings.flavors}
    if wanted and missing(stack, _KINDS[reference.to], (name, wanted), elsewhere[reference.to]):
        path = ".".join((*reference.holder.path, reference.key))
        yield f"{path} names {reference.to} {wanted}, which nothing makes; mend the name or make it"


NAMED: Final = Rule(
    name="queue-references",
    says="Queues name cluster queues, cohorts and flavors that exist.",
    why="Kueue takes the name in silence, and nothing in such a queue is ever admitted.",
    mend="Mend the name, make the object, or list it in the settings if it is made elsewhere.",
    link=f"{_KUEUE}/local_queue/",
    severity=Severity.HIGH,
    level=MUST,
    on=REFERENCES,
    judge=_named,
    settings=ReferenceSettings,
    whole=True,
)


def _tree(cohort: Resource, _: Gpus, stack: Stack) -> Iterator[str]:
    way = [name(cohort)]
    parent = cohort_of(cohort)
    while parent and parent not in way:
        way.append(parent)
        found = stack.first(COHORTS, always, (name, parent))
        if found is None:
            return
        with elsewhere(found):
            parent = cohort_of(found)
    if parent and parent == way[0]:
        yield f"is above itself: {' → '.join([*way, parent])}; take one parentName out"


TREE: Final = Rule(
    name="cohorts-are-a-tree",
    says="No cohort is above itself.",
    why="Kueue takes a cycle of cohorts in silence and admits nothing in any of them.",
    mend="Take `parentName` out of the one that is to be the root.",
    link=f"{_KUEUE}/cohort/",
    severity=Severity.HIGH,
    level=MUST,
    on=COHORTS,
    judge=_tree,
    settings=Gpus,
    whole=True,
)

QUEUED: Final = objects("workloads", *PODS_IN, *BATCH)


def _queue_of(workload: Resource) -> str:
    """The LocalQueue that a workload names, on itself or on the jobs that it makes; empty where it names none."""
    own = workload.props.text("metadata", "labels", QUEUE_NAME)
    if own or workload.kind != "CronJob":
        return own
    return workload.props.text("spec", "jobTemplate", "metadata", "labels", QUEUE_NAME)


class LocalSettings(Tenants):
    """Local queues beside those of the stack."""

    queues: list[str] = Field(
        [],
        description="LocalQueues made elsewhere, `namespace/name`, as patterns. With none here and none in the stack,"
        " no name is judged.",
    )


def _full_name(queue: Resource) -> str:
    return f"{namespace(queue)}/{name(queue)}"


def _queue_exists(workload: Resource, settings: LocalSettings, stack: Stack) -> Iterator[str]:
    where = namespace(workload)
    pods = workload.parts(PODS)
    names = {_queue_of(workload), *(pod.meta.text("labels", QUEUE_NAME) for pod in pods)} - {""}
    for wanted in sorted(names):
        if missing(stack, LOCAL_QUEUES, (_full_name, f"{where}/{wanted}"), settings.queues):
            yield (
                f"names queue {wanted}, and namespace {where} has no LocalQueue of that name; mend {QUEUE_NAME} or"
                " make it"
            )


QUEUE_EXISTS: Final = Rule(
    name="queue-exists",
    says="The queue that a workload names is in its namespace.",
    why="Kueue holds the work for ever, and says so only in the Workload's status.",
    mend=f"Mend the label `{QUEUE_NAME}`, or make the LocalQueue in that namespace.",
    link="https://kueue.sigs.k8s.io/docs/tasks/run/jobs/",
    severity=Severity.HIGH,
    level=MUST,
    on=QUEUED,
    judge=_queue_exists,
    settings=LocalSettings,
    whole=True,
)


def _covered(pod: Pod, settings: TenantGpus, stack: Stack) -> Iterator[str]:
    wanted = _queue_of(pod.resource) or pod.meta.text("labels", QUEUE_NAME)
    if not wanted:
        return
    local = stack.first(LOCAL_QUEUES, always, (_full_name, f"{pod.namespace}/{wanted}"))
    if local is None:
        return
    with elsewhere(local):
        target = local.props.text("spec", "clusterQueue")
    queue = stack.first(CLUSTER_QUEUES, always, (name, target))
    if queue is None:
        return
    with elsewhere(queue):
        covered = {
            each for group in queue.props.items("spec", "resourceGroups") for each in group.texts("coveredResources")
        }
    for resource in pod.gpus(settings):
        if resource not in covered:
            yield (
                f"asks for {resource}, which ClusterQueue {target} does not cover; add it to coveredResources with a"
                " quota, or name another queue"
            )


COVERED: Final = Rule(
    name="queue-covers-gpus",
    says="The queue of a workload covers the GPUs that the workload asks for.",
    why="Kueue never admits work that asks for a resource of which its queue has no quota.",
    mend="Add the resource to the ClusterQueue's `coveredResources` and to each of its flavors.",
    link=f"{_KUEUE}/cluster_queue/#resource-groups",
    severity=Severity.HIGH,
    level=MUST,
    on=PODS,
    judge=_covered,
    settings=TenantGpus,
    whole=True,
)

RULES: Final[tuple[AnyRule, ...]] = (NAMED, TREE, QUEUE_EXISTS, COVERED)
