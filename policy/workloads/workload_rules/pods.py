"""Pods and containers in objects of Kubernetes and of operators."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final

from pydantic import Field

from rule_engine import Resource, Settings, Subject, Unknown, View, kubernetes

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
"""Has its own GPU request; its pods are in a runtime, usually of another stack."""
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
"""Kinds of batch workloads."""
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
    "network-operator",
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
def _matches_any(text: str, patterns: tuple[str, ...]) -> bool:
    """Whether a text matches one of these patterns; cached, because rules check the same few names again and again."""
    return any(fnmatchcase(text, pattern) for pattern in patterns)


class Tenants(Settings):
    """Selects the namespaces of tenants."""

    system: list[str] = Field(
        SYSTEM,
        description=(
            "Namespaces that do not belong to a tenant, as patterns (`*-system`); objects in them are not checked."
        ),
    )

    def tenant(self, namespace: str) -> bool:
        """Whether a namespace is a tenant's."""
        return not _matches_any(namespace, tuple(self.system))

    def of_tenant(self, resource: Resource, messages: Iterable[str]) -> Iterator[str]:
        """The messages about an object, if it belongs to a tenant.

        Objects in system namespaces are not checked. An unknown namespace matters only if there is a message.
        """
        known = not isinstance(resource.props.entries("metadata").get("namespace", View(None)).value, Unknown)
        if known and not self.tenant(namespace_of(resource)):
            return
        for message in messages:
            if self.tenant(namespace_of(resource)):
                yield message


class Gpus(Settings):
    """Selects the resources that are GPUs."""

    gpus: list[str] = Field(
        GPUS, description="Resource names of GPUs or GPU partitions, as patterns (`nvidia.com/mig-*`)."
    )

    def is_gpu(self, resource: str) -> bool:
        """Whether a resource name is a GPU's."""
        return _matches_any(resource, tuple(self.gpus))


class TenantGpus(Tenants, Gpus):
    """Selects the namespaces of tenants and the resources that are GPUs."""


@dataclass(frozen=True, slots=True, eq=False)
class Pod:
    """A pod or a pod template.

    Attributes:
        resource: the object that contains it.
        meta: its metadata.
        spec: its spec.
        label: the name of the template in its object; empty if there is only one.
    """

    resource: Resource
    meta: View
    spec: View
    label: str = ""

    @property
    def place(self) -> str:
        """The object, and the name of the template."""
        return f"{self.resource.place}, {self.label}" if self.label else self.resource.place

    @property
    def namespace(self) -> str:
        """The namespace of its object; `default` if it is not set."""
        return namespace_of(self.resource)

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
            Container(self, view, field)
            for field in ("containers", "initContainers")
            for view in self.spec.items(field)
        ]

    def gpus(self, settings: Gpus) -> dict[str, Decimal]:
        """Requested GPUs by resource name: the sum over containers, or the maximum of an init container if higher.

        https://kubernetes.io/docs/concepts/workloads/pods/init-containers/#resource-sharing-within-containers
        """
        return self.resource.once((self, *settings.gpus), lambda: self._gpus(settings))

    def _gpus(self, settings: Gpus) -> dict[str, Decimal]:
        running: dict[str, Decimal] = {}
        before: dict[str, Decimal] = {}
        for container in self.containers:
            for name, count in container.gpus(settings).items():
                if container.is_long_running:
                    running[name] = running.get(name, Decimal(0)) + count
                else:
                    before[name] = max(before.get(name, Decimal(0)), count)
        gpus = {name: max(running.get(name, Decimal(0)), before.get(name, Decimal(0))) for name in running | before}
        return {name: count for name, count in sorted(gpus.items()) if count > 0}


@dataclass(frozen=True, slots=True, eq=False)
class Container:
    """A container of a pod.

    Attributes:
        within: `containers` or `initContainers`; `trainer` for a TrainJob.
    """

    pod: Pod
    view: View
    within: str = "containers"

    @property
    def place(self) -> str:
        """The pod's place, and the name of the container."""
        return f"{self.pod.place}, container {self.view.text('name') or self.view.path[-1]}"

    @property
    def is_long_running(self) -> bool:
        """Whether it runs as long as the pod, as containers and sidecars do."""
        return self.within != "initContainers" or self.view.text("restartPolicy") == "Always"

    @property
    def resources(self) -> View:
        """Its requests and limits."""
        return self.view.at("resourcesPerNode" if self.within == "trainer" else "resources")

    def gpus(self, settings: Gpus) -> dict[str, Decimal]:
        """Requested GPUs by resource name, from limits or, without these, from requests."""
        amounts = self.resources.entries("requests") | self.resources.entries("limits")
        return {name: view.number() or Decimal(0) for name, view in amounts.items() if settings.is_gpu(name)}


def namespace_of(resource: Resource) -> str:
    """The namespace of an object; `default` if it is not set."""
    return resource.once("namespace", lambda: resource.props.text("metadata", "namespace", default="default"))


def _pods(resource: Resource) -> Iterator[Pod]:
    for path in PODS_IN[f"{resource.group}:{resource.kind}"]:
        for names, view in views_at(resource.props, path):
            if view.has("spec"):
                yield Pod(resource, view.at("metadata"), view.at("spec"), ".".join(names))


def views_at(view: View, path: str) -> list[tuple[tuple[str, ...], View]]:
    """The values at a path as in `PODS_IN`, each with the names of the items and entries that `*` matched."""
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


def _pods_and_train_jobs(resource: Resource) -> Iterator[Pod]:
    yield from resource.parts(PODS)
    if f"{resource.group}:{resource.kind}" == TRAIN_JOB and resource.props.has("spec", "trainer"):
        yield Pod(resource, View(None), resource.props.at("spec", "trainer"))


def _containers(resource: Resource) -> Iterator[Container]:
    for pod in resource.parts(PODS_AND_TRAIN_JOBS):
        yield from pod.containers


PODS: Final = Subject("pods", kubernetes(*PODS_IN), _pods)
PODS_AND_TRAIN_JOBS: Final = Subject("pods and TrainJobs", kubernetes(*PODS_IN, TRAIN_JOB), _pods_and_train_jobs)
"""Pods, and the known part of TrainJobs' pods: for rules about requests, not about required fields."""
CONTAINERS: Final = Subject("containers", kubernetes(*PODS_IN, TRAIN_JOB), _containers)
