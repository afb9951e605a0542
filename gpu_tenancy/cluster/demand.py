"""Workloads as pod templates with numbers of pods, read from a manifest file or from an object of the cluster."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, cast

from gpu_tenancy.base.bounds import check_values
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import Json, at, int_at, map_at, maps_at, text_at, texts_at
from gpu_tenancy.cluster.gangs import QUEUE_NAME
from gpu_tenancy.cluster.pods import Manifest, ended, label, name_of, namespace_of, scheduler, selects
from gpu_tenancy.cluster.reading import State
from gpu_tenancy.cluster.workloads import Workload, read_workloads
from gpu_tenancy.kube.waiting import is_true
from gpu_tenancy.kueue.api import PREFERRED, REQUIRED, UNCONSTRAINED
from gpu_tenancy.model import names
from gpu_tenancy.model.kinds import Pods, WorkloadKind, kind_of, kinds, values_at
from gpu_tenancy.model.yaml import UnreadableError, read_documents


@dataclass(frozen=True, slots=True)
class Template:
    """Pods that a workload creates, `count` at once."""

    name: str
    count: int
    spec: Mapping[str, Json] = field(repr=False)
    labels: Mapping[str, Json] = field(default_factory=dict[str, Json], repr=False)
    annotations: Mapping[str, Json] = field(default_factory=dict[str, Json], repr=False)

    @property
    def placed(self) -> bool:
        """Whether the pods have an annotation for a topology."""
        return any(key in self.annotations for key in (REQUIRED, PREFERRED, UNCONSTRAINED))

    @property
    def within(self) -> str:
        """Node label of which all pods must have one value; empty for none."""
        return text_at(self.annotations, REQUIRED)


@dataclass(frozen=True, slots=True)
class Demand:
    """One workload to create in the team's namespace."""

    manifest: Mapping[str, Json]
    templates: tuple[Template, ...]
    whole: bool = True  # all pods are admitted together, unlike pods of a Deployment
    gang: str | None = None  # Volcano queue with its quota; None if Kueue has the quota
    together: int = 0  # minimum of pods that Volcano starts together; 0 for all
    groups: int = 1  # of a LeaderWorkerSet; each is admitted as a whole, separately from the others
    channels: tuple[str, ...] = ()  # ResourceClaimTemplates that the driver creates for ComputeDomains of the file

    @property
    def title(self) -> str:
        """Such as `Job nightly`."""
        return f"{text_at(self.manifest, 'kind')} {name_of(self.manifest) or '(name generated)'}"

    @property
    def queue(self) -> str:
        """The LocalQueue label; empty for none."""
        return label(self.manifest, names.QUEUE_LABEL)

    @property
    def priority(self) -> str:
        """The WorkloadPriorityClass label; empty for none."""
        return label(self.manifest, names.PRIORITY_LABEL)


def read_demands(file: Path, namespace: str) -> list[Demand]:
    """Reads all documents. Raises ConsoleError for an unreadable file, no pods, or another namespace."""
    try:
        documents = read_documents(file, str(file), instead="set --file to a YAML file of objects")
    except UnreadableError as error:
        raise error.at(file) from error
    for document in documents:
        check_values(file, document)
    objects = [manifest for document in documents for manifest in _flat(document, file)]
    # Of a chart. A ComputeDomain runs no pods either, and stands beside the workload whose pods claim its channels.
    beside = [one for one in objects if text_at(one, "kind") == names.COMPUTE_DOMAIN[1] or _without_pods(one)]
    manifests = [one for one in objects if one not in beside] or [one for one in objects if _without_pods(one)]
    if not manifests:
        found = "only ComputeDomains" if objects else "empty file"
        raise ConsoleError(f"{file}: {found}", "add a Pod, a Job or another workload")
    channels = tuple(channels_of(one) for one in objects if text_at(one, "kind") == names.COMPUTE_DOMAIN[1])
    return [replace(demand(manifest, namespace), channels=channels) for manifest in manifests]


# API groups of Kubernetes, Gateway API, Prometheus Operator and KEDA; their kinds with pods are in the table of kinds.
_BESIDE: Final = frozenset(
    ("", "autoscaling", "gateway.networking.k8s.io", "keda.sh", "monitoring.coreos.com", "networking.k8s.io", "policy",
     "rbac.authorization.k8s.io")
)  # fmt: skip


def _without_pods(manifest: Manifest) -> bool:
    return text_at(manifest, "apiVersion").rpartition("/")[0] in _BESIDE and kind_of(manifest) is None


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
    """Reads the workload of one object. Raises ConsoleError if it runs no pods, or has another namespace."""
    kind, name, own = kind_of(manifest), text_at(manifest, "kind"), namespace_of(manifest)
    if own not in {"", namespace}:
        problem = f"{name} {name_of(manifest)}: namespace {own} does not match team {namespace}"
        raise ConsoleError(problem, f"run `tenancy fit {own}`, or change metadata.namespace")
    if kind is None or not kind.is_queued:
        known = ", ".join(sorted({known.kind for known in kinds().values() if known.is_queued}))
        group = text_at(manifest, "apiVersion").rpartition("/")[0] or "v1"
        raise ConsoleError(f"{name} ({group}): unsupported kind", f"use one of: {known}")
    placed: Manifest = {**manifest, "metadata": {**map_at(manifest, "metadata"), "namespace": namespace}}
    found = _demand(placed, kind)
    if found.gang is None and any(scheduler(template.spec) == "volcano" for template in found.templates):
        annotations = map_at(placed, "metadata", "annotations")
        least = text_at(annotations, names.GROUP_MINIMUM)
        queue = text_at(annotations, QUEUE_NAME) or "default"
        return replace(found, gang=None if found.queue else queue, together=int(least) if least.isdigit() else 0)
    return found


def volcano_queue(wanted: Demand, *, kueue: bool) -> str | None:
    """The Volcano queue with the quota of a workload; None if Kueue has it. Kueue suspends Jobs without its label."""
    kind = kind_of(wanted.manifest)
    return wanted.gang if kind is None or kind.gang or kind.kind == "Pod" or not kueue else None


def template_of(name: str, count: int, template: Json) -> Template:
    """Reads a pod template (`metadata`, `spec`)."""
    found = template if isinstance(template, dict) else {}
    metadata = map_at(found, "metadata")
    return Template(name, count, map_at(found, "spec"), map_at(metadata, "labels"), map_at(metadata, "annotations"))


def _demand(manifest: Manifest, kind: WorkloadKind) -> Demand:
    groups = int_at(manifest, *kind.groups.count.split("."), otherwise=1) if kind.groups else 1
    templates = tuple(_templates(manifest, kind, groups))
    gang = next((spec for _, spec in values_at(manifest, kind.gang)), None) if kind.gang else None
    if gang is not None:
        by = text_at(gang, "schedulerName") or "volcano"
        templates = tuple(replace(one, spec={"schedulerName": by, **one.spec}) for one in templates)
    return Demand(
        manifest,
        templates,
        whole=kind.queue == "object" and groups == 1,
        gang=None if gang is None else text_at(gang, "queue") or "default",
        together=0 if gang is None else int_at(gang, "minAvailable", otherwise=0),
        groups=groups,
    )


def _templates(manifest: Manifest, kind: WorkloadKind, groups: int) -> Iterator[Template]:
    counted = manifest
    if kind.api == names.RAY_JOB:  # The pod that submits its job; in other modes than K8sJobMode there is none.
        spec = map_at(manifest, "spec")
        template = spec.pop("submitterPodTemplate", None)
        if text_at(spec, "submissionMode") in {"", "K8sJobMode"}:
            spec["submitterPodTemplate"] = template or {"spec": {"containers": [_SUBMITTER]}}
        counted = {**manifest, "spec": spec}
    for pods in kind.pods:
        for found in pods.of(counted):
            if pods.resources:
                yield Template(found.name, found.count, _of_trainer(manifest, kind, found.template, pods))
                continue
            template = template_of(found.name, found.count * groups, dict(found.template))
            yield replace(template, spec=_of_head(manifest, template.spec, pods)) if pods.adds == "ray" else template


def _of_trainer(manifest: Manifest, kind: WorkloadKind, trainer: Manifest, pods: Pods) -> dict[str, Json]:
    """Reads the trainer's container and pod specs of patches; the runtime is not read."""
    spec: dict[str, Json] = {}
    for path in kind.patches:
        for _, patch in values_at(manifest, path):
            for key, value in patch.items():
                before = spec.get(key)
                if isinstance(before, list) and isinstance(value, list):
                    spec[key] = [*before, *value]
                elif isinstance(before, dict) and isinstance(value, dict):
                    spec[key] = {**before, **value}
                else:
                    spec[key] = value
    container: Json = {"name": pods.name, "image": text_at(trainer, "image"), "resources": at(trainer, pods.resources)}
    return {**spec, "containers": [container]}


_SUBMITTER: Final[dict[str, Json]] = {
    "name": "ray-job-submitter",
    "resources": {"requests": {"cpu": "500m", "memory": "200Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
}
_AMOUNTS: Final[Json] = {"cpu": "500m", "memory": "512Mi"}
# KubeRay's containers: https://github.com/ray-project/kuberay/tree/v1.6.2/ray-operator/controllers/ray/common.
_AUTOSCALER: Final[Json] = {"requests": _AMOUNTS, "limits": _AMOUNTS}


def _of_head(manifest: Manifest, spec: Manifest, pods: Pods) -> dict[str, Json]:
    # KubeRay adds its autoscaler to the head, and the submitter of a RayJob:
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobs/raycluster/common.go
    beside: list[Json] = []
    for _, cluster in values_at(manifest, pods.at):
        if at(cluster, "enableInTreeAutoscaling") is True:
            resources = at(cluster, "autoscalerOptions", "resources") or _AUTOSCALER
            beside.append({"name": "autoscaler", "resources": resources})
    if text_at(manifest, "spec", "submissionMode") == "SidecarMode":
        beside.append(_SUBMITTER)
    return {**spec, "containers": [*maps_at(spec, "containers"), *beside]}


def with_runtime(demand: Demand, state: State) -> Demand:
    """Adds the pods of a TrainJob's runtime; other kinds, and TrainJobs with an unknown runtime, are unchanged."""
    manifest = demand.manifest
    if text_at(manifest, "kind") != "TrainJob":
        return demand
    name, own = (text_at(manifest, "spec", "runtimeRef", key) for key in ("name", "kind"))
    of_team = own == "TrainingRuntime"
    runtimes = state.of(own, namespace_of(manifest)) if of_team else state.of("ClusterTrainingRuntime")
    runtime = next((runtime for runtime in runtimes if name_of(runtime) == name), None)
    if not runtime:
        return demand
    jobs: Json = at(runtime, "spec", "template", "spec", "replicatedJobs")
    for patch in maps_at(manifest, "spec", "runtimePatches"):
        patches = at(patch, "trainingRuntimeSpec", "template", "spec", "replicatedJobs")
        jobs = _merged_template(jobs, patches) if patches else jobs
    launched = at(runtime, "spec", "mlPolicy", "mpi", "runLauncherAsNode") is True
    templates: list[Template] = []
    for job in maps_at({"jobs": jobs}, "jobs"):
        count = _count(manifest, runtime, job, launched=launched) * int_at(job, "replicas", otherwise=1)
        templates.append(template_of(text_at(job, "name"), count, _trained(manifest, job, launched=launched)))
    return replace(demand, templates=tuple(templates))


def _count(manifest: Manifest, runtime: Manifest, job: Manifest, *, launched: bool) -> int:
    """The trainer's pods are `numNodes`; with MPI, one less if the launcher computes."""
    otherwise = int_at(job, "template", "spec", "parallelism", otherwise=1)
    if _trains(job):
        otherwise = int_at(runtime, "spec", "mlPolicy", "numNodes", otherwise=1)
    nodes = int_at(manifest, "spec", "trainer", "numNodes", otherwise=0)
    if not nodes:
        return otherwise
    if isinstance(at(runtime, "spec", "mlPolicy", "mpi"), dict):
        return (max(nodes - 1, 1) if launched else nodes) if text_at(job, "name") == names.NODE else otherwise
    return nodes if _trains(job) else otherwise


def _trains(job: Manifest) -> bool:
    label, value = names.TRAINER_STEP
    return text_at(job, "template", "metadata", "labels", label) == value


def _trained(manifest: Manifest, job: Manifest, *, launched: bool) -> Json:
    template = at(job, "template", "spec", "template")
    own: dict[str, Json] = {"name": names.NODE}
    if _trains(job) and (image := text_at(manifest, "spec", "trainer", "image")):
        own["image"] = image
    if _trains(job) or (launched and text_at(job, "name") == names.NODE):
        own["resources"] = at(manifest, "spec", "trainer", "resourcesPerNode") or {}
    containers = maps_at(job, "template", "spec", "template", "spec", "containers")
    if not any(text_at(container, "name") == names.NODE for container in containers):
        return template
    return _merged_template(template, {"spec": {"containers": [own]}})


def _merged_template(base: Json, patch: Json) -> Json:
    """A strategic merge: lists of named items by name, other lists as a whole."""
    if isinstance(base, dict) and isinstance(patch, dict):
        both = {key: _merged_template(base[key], value) if key in base else value for key, value in patch.items()}
        return {**base, **both}
    if isinstance(base, list) and isinstance(patch, list):
        named = [(text_at(item, "name"), item) for item in (*base, *patch) if isinstance(item, dict) and "name" in item]
        if len(named) == len(base) + len(patch):
            items: dict[str, Json] = {}
            for name, item in named:
                items[name] = _merged_template(items[name], item) if name in items else item
            return list(items.values())
    return patch


KINDS: Final = tuple(sorted((kind.api for kind in kinds().values() if kind.version), key=lambda api: api[1]))


@dataclass(frozen=True, slots=True)
class Target:
    """An object that runs pods, with its pods that have not ended."""

    manifest: Manifest
    demand: Demand
    pods: tuple[Manifest, ...] = ()
    workloads: tuple[Workload, ...] = ()  # Kueue's, of the object or of its pods
    groups: tuple[Manifest, ...] = ()  # Volcano's PodGroups

    @property
    def title(self) -> str:
        """Such as `Job ml-research/nightly`."""
        return f"{text_at(self.manifest, 'kind')} {namespace_of(self.manifest)}/{name_of(self.manifest)}"

    @property
    def uid(self) -> str:
        """Kubernetes uid of the object."""
        return text_at(self.manifest, "metadata", "uid")

    @property
    def queue(self) -> str:
        """The LocalQueue label of the object or of its pods; empty for none."""
        return self.demand.queue or next(filter(None, (label(pod, names.QUEUE_LABEL) for pod in self.pods)), "")

    @property
    def outcome(self) -> str:
        """See `outcome`."""
        return outcome(self.manifest)


FAILED: Final = frozenset({"Failed", "Aborted"})


def outcome(manifest: Manifest) -> str:
    """How an object ended, such as `Complete`; empty if it did not."""
    if kind := next((kind for kind in ("Complete", "Completed", "Failed") if is_true(manifest, kind)), ""):
        return kind
    states = (("phase",), ("state", "phase"), ("jobDeploymentStatus",))
    phase = next(filter(None, (text_at(manifest, "status", *path) for path in states)), "")
    return phase if phase in {"Succeeded", "Failed", "Complete", "Completed", "Aborted", "Terminated"} else ""


def target_of(manifest: Manifest, state: State) -> Target:
    """Collects the pods, Workloads and PodGroups of an object."""
    namespace = namespace_of(manifest)
    pods = tuple(each for each in state.of("Pod", namespace) if belongs(each, manifest) and not ended(each))
    uids = {text_at(each, "metadata", "uid") for each in (manifest, *pods)}
    found = (each for each in read_workloads(state.of("Workload")) if each.namespace == namespace)
    return Target(
        manifest,
        with_runtime(demand(manifest, namespace), state),
        pods,
        tuple(each for each in found if uids & set(each.owners)),
        tuple(each for each in state.of("PodGroup", namespace) if uids & set(owners(each))),
    )


def owners(manifest: Manifest) -> list[str]:
    """Uids of the owner references."""
    return [text_at(each, "uid") for each in maps_at(manifest, "metadata", "ownerReferences")]


def belongs(pod: Manifest, manifest: Manifest) -> bool:
    """Whether a pod is the object, or the object owns it directly or indirectly."""
    uid, kind = text_at(manifest, "metadata", "uid"), kind_of(manifest)
    if uid in {text_at(pod, "metadata", "uid"), *owners(pod)}:
        return True
    carried: Mapping[str, str] = texts_at(pod, "metadata", "labels")
    if kind and kind.label:
        statuses = [text_at(manifest, *(step.field for step in path)) for path in kind.named]
        owner = carried.get(kind.label, "")
        return bool(owner) and owner in (statuses if kind.named else [name_of(manifest)])
    selector = at(manifest, "spec", "selector")
    return bool(selector) and selects(selector, carried)
