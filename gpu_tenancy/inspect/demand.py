"""Workloads of a manifest file, as pod templates with their numbers of pods."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeAlias, cast

from gpu_tenancy.base.bounds import check_values
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import Json, at, int_at, map_at, maps_at, text_at
from gpu_tenancy.inspect.pods import Manifest, called, home, label, scheduler
from gpu_tenancy.kueue.topology import PREFERRED, REQUIRED, UNCONSTRAINED
from gpu_tenancy.model.plan.compute_domains import COMPUTE_DOMAIN
from gpu_tenancy.model.written import UnreadableError, read_documents

QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
PRIORITY_LABEL: Final = "kueue.x-k8s.io/priority-class"


@dataclass(frozen=True, slots=True)
class Template:
    """Pods that a workload would create.

    Attributes:
        count: how many at once.
        labels: of the pods.
        annotations: of the pods.
    """

    name: str
    count: int
    spec: Mapping[str, Json] = field(repr=False)
    labels: Mapping[str, Json] = field(default_factory=dict[str, Json], repr=False)
    annotations: Mapping[str, Json] = field(default_factory=dict[str, Json], repr=False)

    @property
    def placed(self) -> bool:
        """Whether it states its place in the network."""
        return any(key in self.annotations for key in (REQUIRED, PREFERRED, UNCONSTRAINED))

    @property
    def within(self) -> str:
        """Node label of which all its pods must have one value; empty for none."""
        return text_at(self.annotations, REQUIRED)


@dataclass(frozen=True, slots=True)
class Demand:
    """One workload that a user wants to create.

    Attributes:
        manifest: as written, in the team's namespace.
        templates: the pods that it would create.
        whole: whether all of its pods are admitted together; those of a Deployment are admitted separately.
        groups: number of groups of a LeaderWorkerSet; each is admitted as a whole, separately from the others.
        gang: the Volcano queue, where Volcano schedules it; None where it does not.
        channels: ResourceClaimTemplates that the driver makes for ComputeDomains of the same file.
    """

    manifest: Mapping[str, Json]
    templates: tuple[Template, ...]
    whole: bool = True
    gang: str | None = None
    groups: int = 1
    channels: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Such as `Job nightly`."""
        name = called(self.manifest) or text_at(self.manifest, "metadata", "generateName")
        return f"{text_at(self.manifest, 'kind')} {name}"

    @property
    def queue(self) -> str:
        """The LocalQueue of its label; empty for none."""
        return label(self.manifest, QUEUE_LABEL)

    @property
    def priority(self) -> str:
        """The WorkloadPriorityClass of its label; empty for none."""
        return label(self.manifest, PRIORITY_LABEL)


_Reader: TypeAlias = Callable[[Manifest], Demand]


def read_demands(file: Path, namespace: str) -> list[Demand]:
    """Reads the documents of a file.

    Raises:
        ConsoleError: it cannot be read, or a document runs no pods or has another namespace.
    """
    try:
        documents = read_documents(file, str(file), instead="set --file to a YAML file of objects")
    except UnreadableError as error:
        place = f"{file}:{error.line}" if error.line else f"{file}"
        raise ConsoleError(f"{place}: {error.rule}", error.fix) from error
    for document in documents:
        check_values(file, document)
    objects = [manifest for document in documents for manifest in _flat(document, file)]
    # A ComputeDomain runs no pods, and stands beside the workload whose pods claim its channels.
    manifests = [one for one in objects if text_at(one, "kind") != COMPUTE_DOMAIN[1]]
    if not manifests:
        found = "only ComputeDomains" if objects else "empty file"
        raise ConsoleError(f"{file}: {found}", "add a Pod, a Job or another workload")
    channels = tuple(channels_of(one) for one in objects if text_at(one, "kind") == COMPUTE_DOMAIN[1])
    return [replace(demand(manifest, namespace), channels=channels) for manifest in manifests]


def channels_of(domain: Manifest) -> str:
    """Name of the ResourceClaimTemplate of a ComputeDomain."""
    return text_at(domain, "spec", "channel", "resourceClaimTemplate", "name")


def _flat(document: object, file: Path) -> Iterator[dict[str, Json]]:
    if document is None:
        return
    if not isinstance(document, dict) or not text_at(cast("Manifest", document), "kind"):
        raise ConsoleError(f"{file}: a document is not a Kubernetes object", "add apiVersion, kind and metadata")
    found = cast("dict[str, Json]", document)
    if text_at(found, "kind") == "List":
        for item in maps_at(found, "items"):
            yield from _flat(item, file)
    else:
        yield found


def demand(manifest: Mapping[str, Json], namespace: str) -> Demand:
    """Reads one object.

    Raises:
        ConsoleError: it runs no pods, or has another namespace.
    """
    kind = (text_at(manifest, "apiVersion").rpartition("/")[0], text_at(manifest, "kind"))
    if home(manifest) not in {"", namespace}:
        raise ConsoleError(
            f"{kind[1]} {called(manifest)}: namespace {home(manifest)} does not match team {namespace}",
            f"run `tenancy fit {home(manifest)}`, or change metadata.namespace",
        )
    if kind not in _READERS:
        known = ", ".join(sorted({name for _, name in _READERS}))
        raise ConsoleError(f"{kind[1]} ({kind[0] or 'v1'}): unsupported kind", f"supported kinds: {known}")
    metadata = at(manifest, "metadata")
    placed = {**manifest, "metadata": {**(metadata if isinstance(metadata, dict) else {}), "namespace": namespace}}
    found = _READERS[kind](placed)
    if found.gang is None and any(scheduler(template.spec) == "volcano" for template in found.templates):
        annotated = text_at(placed, "metadata", "annotations", "scheduling.volcano.sh/queue-name")
        return replace(found, gang=annotated or "default")
    return found


def _number(manifest: Manifest, *keys: str, otherwise: int = 1) -> int:
    return int_at(manifest, *keys, otherwise=otherwise)


def template_of(name: str, count: int, template: Json) -> Template:
    """Pods of a pod template (`metadata`, `spec`)."""
    found = template if isinstance(template, dict) else {}
    spec, labels, annotations = (
        at(found, *path) for path in (("spec",), ("metadata", "labels"), ("metadata", "annotations"))
    )
    return Template(name, count, *(each if isinstance(each, dict) else {} for each in (spec, labels, annotations)))


def _pod(manifest: Manifest) -> Demand:
    return Demand(manifest, (template_of("pod", 1, dict(manifest)),))


def _job(manifest: Manifest) -> Demand:
    return Demand(manifest, (template_of("pod", _parallel(manifest), at(manifest, "spec", "template")),))


def _parallel(job: Manifest) -> int:
    """Pods of a Job that run at once: its parallelism, but not more than its completions."""
    parallelism = _number(job, "spec", "parallelism")
    return min(parallelism, _number(job, "spec", "completions", otherwise=parallelism))


def _replicas(*, whole: bool) -> _Reader:
    def read(manifest: Manifest) -> Demand:
        count = _number(manifest, "spec", "replicas")
        return Demand(manifest, (template_of("pod", count, at(manifest, "spec", "template")),), whole=whole)

    return read


def _gang(manifest: Manifest) -> Demand:
    tasks = tuple(
        template_of(text_at(each, "name") or "task", _number(each, "replicas"), at(each, "template"))
        for each in maps_at(manifest, "spec", "tasks")
    )
    by = text_at(manifest, "spec", "schedulerName") or "volcano"
    placed = tuple(replace(task, spec={"schedulerName": by, **task.spec}) for task in tasks)
    return Demand(manifest, placed, gang=text_at(manifest, "spec", "queue") or "default")


def _job_set(manifest: Manifest) -> Demand:
    return Demand(
        manifest,
        tuple(
            template_of(
                text_at(each, "name"),
                _number(each, "replicas") * _parallel(job if isinstance(job := at(each, "template"), dict) else {}),
                at(each, "template", "spec", "template"),
            )
            for each in maps_at(manifest, "spec", "replicatedJobs")
        ),
    )


def _train_job(manifest: Manifest) -> Demand:
    """The trainer's nodes, with the pod specs of patches; the runtime itself is not read."""
    spec: dict[str, Json] = {}
    for patch in _patches(manifest):
        spec = _merged(spec, patch)
    resources = at(manifest, "spec", "trainer", "resourcesPerNode")
    containers: list[Json] = [
        {"name": "node", "image": text_at(manifest, "spec", "trainer", "image"), "resources": resources}
    ]
    count = _number(manifest, "spec", "trainer", "numNodes")
    return Demand(manifest, (Template("node", count, {**spec, "containers": containers}),))


def _kubeflow(replicas: str) -> _Reader:
    """A kind of the Training Operator, with its roles in the order in which Kueue counts them.

    https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobs/kubeflow/kubeflowjob/kubeflowjob_controller.go
    """

    def read(manifest: Manifest) -> Demand:
        roles = map_at(manifest, "spec", replicas)
        known = [name for name in _KUBEFLOW_ROLES if name in roles]
        found = ((name, map_at(manifest, "spec", replicas, name)) for name in known)
        return Demand(
            manifest,
            tuple(template_of(name.lower(), _number(role, "replicas"), at(role, "template")) for name, role in found),
        )

    return read


_KUBEFLOW_ROLES: Final = ("Master", "Worker")


def _ray(*path: str) -> _Reader:
    """A kind of KubeRay, with the head and its worker groups, as Kueue counts them.

    https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobs/raycluster/common.go
    """

    def read(manifest: Manifest) -> Demand:
        cluster = map_at(manifest, "spec", *path)
        beside, submitters = _submitting(manifest)
        if at(cluster, "enableInTreeAutoscaling") is True:
            resources = at(cluster, "autoscalerOptions", "resources") or _AUTOSCALER
            beside.append({"name": "autoscaler", "resources": resources})
        head = template_of("head", 1, at(cluster, "headGroupSpec", "template"))
        containers: list[Json] = [*maps_at(head.spec, "containers"), *beside]
        workers = (
            template_of(
                text_at(group, "groupName"),
                _number(group, "replicas", otherwise=0) * max(1, _number(group, "numOfHosts")),
                at(group, "template"),
            )
            for group in maps_at(cluster, "workerGroupSpecs")
        )
        return Demand(manifest, (replace(head, spec={**head.spec, "containers": containers}), *workers, *submitters))

    return read


_SUBMITTER: Final[dict[str, Json]] = {
    "requests": {"cpu": "500m", "memory": "200Mi"},
    "limits": {"cpu": "1", "memory": "1Gi"},
}
_AUTOSCALER: Final[dict[str, Json]] = {
    "requests": {"cpu": "500m", "memory": "512Mi"},
    "limits": {"cpu": "500m", "memory": "512Mi"},
}
"""Resources of what KubeRay adds to a Ray cluster:
https://github.com/ray-project/kuberay/tree/v1.6.2/ray-operator/controllers/ray/common."""


def _submitting(manifest: Manifest) -> tuple[list[Json], list[Template]]:
    """What submits a RayJob: a container of the head, or a pod. With the mode HTTPMode, KubeRay does it itself."""
    if text_at(manifest, "kind") != "RayJob":
        return [], []
    container: Json = {"name": "ray-job-submitter", "resources": _SUBMITTER}
    match text_at(manifest, "spec", "submissionMode") or "K8sJobMode":
        case "SidecarMode":
            return [container], []
        case "K8sJobMode":
            own: Json = at(manifest, "spec", "submitterPodTemplate") or {"spec": {"containers": [container]}}
            return [], [template_of("submitter", 1, own)]
        case _:
            return [], []


def _leader_worker_set(manifest: Manifest) -> Demand:
    """The leaders of all groups, if they have a template of their own, and the workers.

    https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobs/leaderworkerset/leaderworkerset_reconciler.go
    """
    spec = map_at(manifest, "spec", "leaderWorkerTemplate")
    size, leader, groups = _number(spec, "size"), at(spec, "leaderTemplate"), _number(manifest, "spec", "replicas")
    worker = at(spec, "workerTemplate")
    if leader:
        pods = (template_of("leader", groups, leader), template_of("worker", (size - 1) * groups, worker))
    else:
        pods = (template_of("main", size * groups, worker),)
    return Demand(manifest, pods, whole=groups == 1, groups=groups)


def _patches(manifest: Manifest) -> Iterator[dict[str, Json]]:
    """Pod specs of Trainer's patches, and of the older overrides."""
    for each in maps_at(manifest, "spec", "podTemplateOverrides"):
        if isinstance(spec := at(each, "spec"), dict):
            yield spec
    for each in maps_at(manifest, "spec", "runtimePatches"):
        for job in maps_at(each, "trainingRuntimeSpec", "template", "spec", "replicatedJobs"):
            if isinstance(spec := at(job, "template", "spec", "template", "spec"), dict):
                yield spec


def _merged(one: dict[str, Json], other: Mapping[str, Json]) -> dict[str, Json]:
    merged = {**one, **other}
    for key in one.keys() & other.keys():
        first, second = one[key], other[key]
        if isinstance(first, list) and isinstance(second, list):
            merged[key] = [*first, *second]
        elif isinstance(first, dict) and isinstance(second, dict):
            merged[key] = {**first, **second}
    return merged


_READERS: Final[Mapping[tuple[str, str], _Reader]] = {
    ("", "Pod"): _pod,
    ("batch", "Job"): _job,
    ("apps", "Deployment"): _replicas(whole=False),
    ("apps", "StatefulSet"): _replicas(whole=True),
    ("batch.volcano.sh", "Job"): _gang,
    ("jobset.x-k8s.io", "JobSet"): _job_set,
    ("trainer.kubeflow.org", "TrainJob"): _train_job,
    ("ray.io", "RayJob"): _ray("rayClusterSpec"),
    ("ray.io", "RayCluster"): _ray(),
    ("ray.io", "RayService"): _ray("rayClusterConfig"),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): _leader_worker_set,
    ("kubeflow.org", "PyTorchJob"): _kubeflow("pytorchReplicaSpecs"),
}
