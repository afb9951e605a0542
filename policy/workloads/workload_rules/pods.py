"""Pods and containers, wherever an object of Kubernetes or of an operator holds them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Final

from pydantic import Field

from judge import Resource, Settings, Subject, View, kubernetes

PODS_IN: Final[Mapping[str, tuple[str, ...]]] = {
    "core:Pod": ("",),
    "core:ReplicationController": ("spec.template",),
    "apps:Deployment": ("spec.template",),
    "apps:StatefulSet": ("spec.template",),
    "apps:DaemonSet": ("spec.template",),
    "apps:ReplicaSet": ("spec.template",),
    "batch:Job": ("spec.template",),
    "batch:CronJob": ("spec.jobTemplate.spec.template",),
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
"""Where pods are, by API group and kind; `*` goes into each item of a list, or each entry of a map.

From the operators' own definitions: kubeflow/trainer, ray-project/kuberay, volcano-sh/volcano, kubernetes-sigs/jobset,
kubernetes-sigs/lws, argoproj/argo-rollouts, knative/serving.
"""

BATCH: Final = frozenset(
    {
        "batch:Job",
        "batch:CronJob",
        "batch.volcano.sh:Job",
        "batch.volcano.sh:CronJob",
        "jobset.x-k8s.io:JobSet",
        "trainer.kubeflow.org:TrainJob",
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
"""Kinds of work that answers requests, and goes on."""

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


class Tenants(Settings):
    """Whose pods a rule is about."""

    system: list[str] = Field(
        SYSTEM, description="Namespaces that are no tenant's, as patterns (`*-system`); nothing in them is judged."
    )

    def tenant(self, namespace: str) -> bool:
        """Whether a namespace is a tenant's."""
        return not any(fnmatchcase(namespace, pattern) for pattern in self.system)


class Gpus(Settings):
    """What counts as a GPU."""

    gpus: list[str] = Field(
        GPUS, description="Resource names that are GPUs or parts of them, as patterns (`nvidia.com/mig-*`)."
    )

    def is_gpu(self, resource: str) -> bool:
        """Whether a resource name is a GPU's."""
        return any(fnmatchcase(resource, pattern) for pattern in self.gpus)


class TenantGpus(Tenants, Gpus):
    """Whose pods, and what counts as a GPU."""


@dataclass(frozen=True, slots=True, eq=False)
class Pod:
    """A pod, or the template of many.

    Attributes:
        resource: the object that holds it.
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
        """The namespace of its object; `default` where none is said."""
        return namespace(self.resource)

    @property
    def kind(self) -> str:
        """API group and kind of its object: `batch:Job`."""
        return f"{self.resource.group}:{self.resource.kind}"

    @property
    def containers(self) -> list["Container"]:
        """Containers and init containers."""
        return [
            Container(self, view, each) for each in ("containers", "initContainers") for view in self.spec.items(each)
        ]

    def gpus(self, settings: Gpus) -> dict[str, Decimal]:
        """GPUs that it asks for, by resource name: its containers' together, or an init container's if that is more.

        https://kubernetes.io/docs/concepts/workloads/pods/init-containers/#resource-sharing-within-containers
        """
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
        within: `containers` or `initContainers`.
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
        return self.within == "containers" or self.view.text("restartPolicy") == "Always"

    def gpus(self, settings: Gpus) -> dict[str, Decimal]:
        """GPUs that it asks for, by resource name: its limits, else its requests."""
        asked = self.view.entries("resources", "requests") | self.view.entries("resources", "limits")
        return {name: view.number() or Decimal(0) for name, view in asked.items() if settings.is_gpu(name)}


def namespace(resource: Resource) -> str:
    """The namespace of an object; `default` where it says none."""
    return resource.props.text("metadata", "namespace", default="default")


def _pods(resource: Resource) -> Iterator[Pod]:
    for path in PODS_IN[f"{resource.group}:{resource.kind}"]:
        found = list(_at(resource.props, path.split(".") if path else [], ()))
        for names, view in found:
            if view.has("spec"):
                yield Pod(resource, view.at("metadata"), view.at("spec"), ".".join(names))


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


def _containers(resource: Resource) -> Iterator[Container]:
    for pod in resource.parts(PODS):
        yield from pod.containers


PODS: Final = Subject("pods", kubernetes(*PODS_IN), _pods)
CONTAINERS: Final = Subject("containers", kubernetes(*PODS_IN), _containers)
