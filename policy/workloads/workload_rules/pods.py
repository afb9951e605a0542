"""Pods and containers in objects of Kubernetes and of operators."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final

from pydantic import Field

from judge import Resource, Settings, Subject, Unknown, View, kubernetes

PODS_IN: Final[Mapping[str, tuple[str, ...]]] = {
    "core:Pod": ("",),
    "core:ReplicationController": ("spec.template",),
    "apps:Deployment": ("spec.template",),
    "apps:StatefulSet": ("spec.template",),
    "apps:DaemonSet": ("spec.template",),
    "apps:ReplicaSet": ("spec.template",),
    "batch:Job": ("spec.template",),
    "batch:CronJob": ("spec.jobTemplate.spec.template",),
    "keda.sh:ScaledJob": ("spec.jobTargetRef.template",),
    "batch.volcano.sh:Job": ("spec.tasks.*.template",),
    "batch.volcano.sh:CronJob": ("spec.jobTemplate.spec.tasks.*.template",),
    "jobset.x-k8s.io:JobSet": ("spec.replicatedJobs.*.template.spec.template",),
    "trainer.kubeflow.org:TrainingRuntime": ("spec.template.spec.replicatedJobs.*.template.spec.template",),
    "trainer.kubeflow.org:ClusterTrainingRuntime": ("spec.template.spec.replicatedJobs.*.template.spec.template",),
    "kubeflow.org:PyTorchJob": ("spec.pytorchReplicaSpecs.*.template",),
    "kubeflow.org:TFJob": ("spec.tfReplicaSpecs.*.template",),
    "kubeflow.org:MPIJob": ("spec.mpiReplicaSpecs.*.template",),
    "kubeflow.org:XGBoostJob": ("spec.xgbReplicaSpecs.*.template",),
    "kubeflow.org:JAXJob": ("spec.jaxReplicaSpecs.*.template",),
    "kubeflow.org:PaddleJob": ("spec.paddleReplicaSpecs.*.template",),
    "kubeflow.org:Notebook": ("spec.template",),
    "ray.io:RayCluster": ("spec.headGroupSpec.template", "spec.workerGroupSpecs.*.template"),
    "ray.io:RayJob": (
        "spec.rayClusterSpec.headGroupSpec.template",
        "spec.rayClusterSpec.workerGroupSpecs.*.template",
        "spec.submitterPodTemplate",
    ),
    "ray.io:RayService": (
        "spec.rayClusterConfig.headGroupSpec.template",
        "spec.rayClusterConfig.workerGroupSpecs.*.template",
    ),
    "leaderworkerset.x-k8s.io:LeaderWorkerSet": (
        "spec.leaderWorkerTemplate.leaderTemplate",
        "spec.leaderWorkerTemplate.workerTemplate",
    ),
    "argoproj.io:Rollout": ("spec.template",),
    "serving.knative.dev:Service": ("spec.template",),
}
"""Paths of pod templates, by API group and kind; `*` matches each item of a list, or each entry of a map.

From the operators' own definitions: kubeflow/trainer, ray-project/kuberay, volcano-sh/volcano, kubernetes-sigs/jobset,
kubernetes-sigs/lws, kedacore/keda, argoproj/argo-rollouts, knative/serving.
"""

TRAIN_JOB: Final = "trainer.kubeflow.org:TrainJob"
"""Asks for GPUs by itself; the pod is in a runtime, mostly of another stack."""
BATCH: Final = frozenset(
    {
        "batch:Job",
        "batch:CronJob",
        "batch.volcano.sh:Job",
        "batch.volcano.sh:CronJob",
        "jobset.x-k8s.io:JobSet",
        TRAIN_JOB,
        "kubeflow.org:PyTorchJob",
        "kubeflow.org:TFJob",
        "kubeflow.org:MPIJob",
        "kubeflow.org:XGBoostJob",
        "kubeflow.org:JAXJob",
        "kubeflow.org:PaddleJob",
        "ray.io:RayJob",
    }
)
"""Kinds of work that ends."""
SERVING: Final = frozenset(
    {
        "apps:Deployment",
        "apps:StatefulSet",
        "argoproj.io:Rollout",
        "leaderworkerset.x-k8s.io:LeaderWorkerSet",
        "ray.io:RayService",
        "serving.knative.dev:Service",
    }
)
"""Kinds of long-running serving workloads."""

SYSTEM: Final = [
    "kube-*",
    "*-system",
    "gpu-operator",
    "dra-driver-nvidia-gpu",
    "kube-amd-gpu",
    "monitoring",
    "keda",
    "cert-manager",
    "karpenter",
    "gmp-*",
    "gke-*",
]
GPUS: Final = ["nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-*", "amd.com/gpu", "gpu.intel.com/*"]


@lru_cache(maxsize=4096)
def _fits(text: str, patterns: tuple[str, ...]) -> bool:
    """Whether a text is one of these patterns; each rule asks it of the same few namespaces and resources."""
    return any(fnmatchcase(text, pattern) for pattern in patterns)


class Tenants(Settings):
    """Whose pods a rule is about."""

    system: list[str] = Field(
        SYSTEM,
        description=(
            "Namespaces that do not belong to a tenant, as patterns (`*-system`); objects in them are not checked."
        ),
    )

    def tenant(self, namespace: str) -> bool:
        """Whether a namespace is a tenant's."""
        return not _fits(namespace, tuple(self.system))

    def of_tenant(self, resource: Resource, found: Iterable[str]) -> Iterator[str]:
        """What is found wrong with an object of a tenant.

        Nothing is looked for in a namespace of the system. Where the namespace is not known yet, it matters only if
        something is wrong.
        """
        known = not isinstance(resource.props.entries("metadata").get("namespace", View(None)).value, Unknown)
        if known and not self.tenant(namespace(resource)):
            return
        for sentence in found:
            if self.tenant(namespace(resource)):
                yield sentence


class Gpus(Settings):
    """What counts as a GPU."""

    gpus: list[str] = Field(
        GPUS, description="Resource names of GPUs or GPU partitions, as patterns (`nvidia.com/mig-*`)."
    )

    def is_gpu(self, resource: str) -> bool:
        """Whether a resource name is a GPU's."""
        return _fits(resource, tuple(self.gpus))


class TenantGpus(Tenants, Gpus):
    """Whose pods, and what counts as a GPU."""


@dataclass(frozen=True, slots=True, eq=False)
class Pod:
    """A pod, or the template of many.

    Attributes:
        resource: the object that contains it.
        meta: its metadata.
        spec: its spec.
        label: which of the object's templates it is; empty where there is one.
    """

    resource: Resource
    meta: View
    spec: View
    label: str = ""

    @property
    def place(self) -> str:
        """The object, and which of its templates."""
        return f"{self.resource.place}, {self.label}" if self.label else self.resource.place

    @property
    def namespace(self) -> str:
        """The namespace of its object; `default` if it is not set."""
        return namespace(self.resource)

    @property
    def kind(self) -> str:
        """API group and kind of its object: `batch:Job`."""
        return f"{self.resource.group}:{self.resource.kind}"

    @property
    def containers(self) -> list["Container"]:
        """Containers and init containers; for a TrainJob, its trainer."""
        return self.resource.once((self, "containers"), self._containers)

    def _containers(self) -> list["Container"]:
        if self.kind == TRAIN_JOB:
            return [Container(self, self.spec, "trainer")]
        return [
            Container(self, view, each) for each in ("containers", "initContainers") for view in self.spec.items(each)
        ]

    def gpus(self, settings: Gpus) -> dict[str, Decimal]:
        """GPUs that it asks for, by resource name: its containers' together, or an init container's if that is more.

        https://kubernetes.io/docs/concepts/workloads/pods/init-containers/#resource-sharing-within-containers
        """
        return self.resource.once((self, *settings.gpus), lambda: self._gpus(settings))

    def _gpus(self, settings: Gpus) -> dict[str, Decimal]:
        running: dict[str, Decimal] = {}
        before: dict[str, Decimal] = {}
        for container in self.containers:
            for name, count in container.gpus(settings).items():
                if container.stays:
                    running[name] = running.get(name, Decimal(0)) + count
                else:
                    before[name] = max(before.get(name, Decimal(0)), count)
        found = {name: max(running.get(name, Decimal(0)), before.get(name, Decimal(0))) for name in running | before}
        return {name: count for name, count in sorted(found.items()) if count > 0}


@dataclass(frozen=True, slots=True, eq=False)
class Container:
    """A container of a pod.

    Attributes:
        within: `containers` or `initContainers`; `trainer` of a TrainJob.
    """

    pod: Pod
    view: View
    within: str = "containers"

    @property
    def place(self) -> str:
        """Its pod's place, and its name."""
        return f"{self.pod.place}, container {self.view.text('name') or self.view.path[-1]}"

    @property
    def stays(self) -> bool:
        """Whether it runs as long as the pod: a sidecar among init containers does."""
        return self.within != "initContainers" or self.view.text("restartPolicy") == "Always"

    @property
    def resources(self) -> View:
        """Its requests and limits."""
        return self.view.at("resourcesPerNode" if self.within == "trainer" else "resources")

    def gpus(self, settings: Gpus) -> dict[str, Decimal]:
        """GPUs that it asks for, by resource name: its limits, else its requests."""
        asked = self.resources.entries("requests") | self.resources.entries("limits")
        return {name: view.number() or Decimal(0) for name, view in asked.items() if settings.is_gpu(name)}


def namespace(resource: Resource) -> str:
    """The namespace of an object; `default` if it is not set."""
    return resource.once("namespace", lambda: resource.props.text("metadata", "namespace", default="default"))


def _pods(resource: Resource) -> Iterator[Pod]:
    for path in PODS_IN[f"{resource.group}:{resource.kind}"]:
        for names, view in views_at(resource.props, path):
            if view.has("spec"):
                yield Pod(resource, view.at("metadata"), view.at("spec"), ".".join(names))


def views_at(view: View, path: str) -> list[tuple[tuple[str, ...], View]]:
    """What is at a path as in `PODS_IN`, each with the names of the items and entries on its way."""
    return list(_at(view, path.split(".") if path else [], ()))


def _at(view: View, keys: Sequence[str], names: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], View]]:
    if not keys:
        yield names, view
    elif keys[0] != "*":
        yield from _at(view.at(keys[0]), keys[1:], names)
    elif isinstance(view.value, list):
        for item in view.items():
            name = item.text("name") or item.text("groupName") or item.path[-1]
            yield from _at(item, keys[1:], (*names, name))
    else:
        for name, item in view.entries().items():
            yield from _at(item, keys[1:], (*names, name))


def _asking(resource: Resource) -> Iterator[Pod]:
    yield from resource.parts(PODS)
    if f"{resource.group}:{resource.kind}" == TRAIN_JOB and resource.props.has("spec", "trainer"):
        yield Pod(resource, View(None), resource.props.at("spec", "trainer"))


def _containers(resource: Resource) -> Iterator[Container]:
    for pod in resource.parts(ASKING):
        yield from pod.containers


PODS: Final = Subject("pods", kubernetes(*PODS_IN), _pods)
ASKING: Final = Subject("pods and TrainJobs", kubernetes(*PODS_IN, TRAIN_JOB), _asking)
"""Pods, and of TrainJobs what is known of theirs: for rules about what is asked for, not about what a pod must have."""
CONTAINERS: Final = Subject("containers", kubernetes(*PODS_IN, TRAIN_JOB), _containers)
