"""Rules for what a pod asks of GPUs, and how it shares them."""

from collections.abc import Iterator
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Final

from pydantic import Field

from judge import ADVICE, MUST, AnyRule, Rule, Severity, Stack, View, quantity, shown
from workload_rules import nodes
from workload_rules.pods import ASKING, CONTAINERS, PODS, Container, Gpus, Pod, TenantGpus, Tenants, views_at

_DOCS: Final = "https://kubernetes.io/docs"


def _request_equals_limit(container: Container, settings: Gpus) -> Iterator[str]:
    limits = container.resources.entries("limits")
    requests = container.resources.entries("requests")
    for name in sorted({*limits, *requests}):
        if not settings.is_gpu(name):
            continue
        limit = limits[name].number() if name in limits else None
        request = requests[name].number() if name in requests else limit
        if limit is None:
            if request:
                count = shown(request)
                yield f"requests {count} {name} without a limit; write limits.{name}: {count} too"
        elif request != limit:
            asked = shown(request or Decimal(0))
            yield f"requests {asked} {name} with a limit of {shown(limit)}; write the same number"
        elif limit != limit.to_integral_value():
            yield f"asks for {shown(limit)} {name}; a GPU is whole: write a whole number, or ask for a partition"


GPU_REQUEST: Final = Rule(
    name="gpu-request-equals-limit",
    says="A container's GPUs are a whole number, the same as request and as limit.",
    why="The API server refuses the pod otherwise, and a Deployment or Job then never has any.",
    mend="Write the number of GPUs under `limits`, and the same under `requests` or nothing there.",
    link=f"{_DOCS}/tasks/manage-gpus/scheduling-gpus/",
    severity=Severity.HIGH,
    level=MUST,
    on=CONTAINERS,
    judge=_request_equals_limit,
    settings=Gpus,
)


class LargestNode(TenantGpus):
    """How many GPUs a node has."""

    largest: dict[str, int] = Field(
        {"nvidia.com/gpu": 8, "amd.com/gpu": 8},
        description="GPUs of the largest node by resource name, also as a pattern (`nvidia.com/mig-*`); the longest"
        " that fits counts, and what none fits is not judged.",
    )

    def most(self, resource: str) -> int | None:
        """GPUs of the largest node; None where nobody says."""
        fitting = [pattern for pattern in self.largest if fnmatchcase(resource, pattern)]
        return self.largest[max(fitting, key=lambda each: (each == resource, len(each), each))] if fitting else None


def _per_node(pod: Pod, settings: LargestNode) -> Iterator[str]:
    for name, count in pod.gpus(settings).items():
        most = settings.most(name)
        if most is not None and count > most:
            yield (
                f"asks for {shown(count)} {name}, and the largest node has {most}; divide the work between pods of"
                f" {most} or less"
            )


GPU_PER_NODE: Final = Rule(
    name="gpu-per-node",
    says="A pod asks for no more GPUs than the largest node has.",
    why="It would wait for ever, and an autoscaler adds nothing for it.",
    mend="Divide the work between several pods, or name the larger node in the rule's settings.",
    link=f"{_DOCS}/tasks/manage-gpus/scheduling-gpus/",
    severity=Severity.HIGH,
    level=MUST,
    on=ASKING,
    judge=lambda pod, settings: settings.of_tenant(pod.resource, _per_node(pod, settings)),
    settings=LargestNode,
)


class VisibleDevices(Tenants):
    """Variables by which a container takes GPUs past Kubernetes."""

    variables: list[str] = Field(
        [
            "NVIDIA_VISIBLE_DEVICES",
            "NVIDIA_MIG_CONFIG_DEVICES",
            "NVIDIA_MIG_MONITOR_DEVICES",
            "AMD_VISIBLE_DEVICES",
        ],
        description="Environment variables that the container runtime takes for a demand of GPUs.",
    )


def _visible_devices(container: Container, settings: VisibleDevices) -> Iterator[str]:
    for variable in container.view.items("env"):
        name = variable.text("name")
        if name not in settings.variables:
            continue
        if variable.has("valueFrom"):
            yield f"takes {name} from elsewhere; take it out, the device plugin sets it"
        elif variable.text("value") not in {"", "none", "void"}:
            yield f"sets {name} itself, to GPUs that nobody gave it; take it out, or write none"


VISIBLE_DEVICES: Final = Rule(
    name="gpu-visible-devices",
    says="No container chooses its own GPUs by an environment variable.",
    why="Where the container runtime obeys it, the container gets GPUs that are counted for another team, or all of a"
    " node's.",
    mend="Ask for GPUs under `limits`, and take the variable out; `none` and `void` are fine.",
    link="https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html",
    severity=Severity.CRITICAL,
    level=MUST,
    on=CONTAINERS,
    judge=lambda container, settings: settings.of_tenant(container.pod.resource, _visible_devices(container, settings)),
    settings=VisibleDevices,
)


class SharedMemory(TenantGpus):
    """What processes that use GPUs together exchange data through."""

    gpus: list[str] = Field(
        ["nvidia.com/gpu", "amd.com/gpu"],
        description="Resource names of whole GPUs, as patterns; partitions do not exchange data.",
    )
    least: str = Field(
        "1Gi",
        pattern=r"^[0-9]+(\.[0-9]+)?(k|M|G|T|Ki|Mi|Gi|Ti)?$",
        description="The smallest sizeLimit of /dev/shm, a Kubernetes quantity.",
    )
    jobs: bool = Field(
        default=True, description="Whether pods with one GPU are judged too, where a job has several of them."
    )


_REPLICAS: Final = {
    "batch.volcano.sh:Job": ("spec.tasks.*.replicas",),
    "kubeflow.org:PyTorchJob": ("spec.pytorchReplicaSpecs.*.replicas",),
    "kubeflow.org:TFJob": ("spec.tfReplicaSpecs.*.replicas",),
    "kubeflow.org:MPIJob": ("spec.mpiReplicaSpecs.*.replicas",),
    "kubeflow.org:JAXJob": ("spec.jaxReplicaSpecs.*.replicas",),
    "kubeflow.org:PaddleJob": ("spec.paddleReplicaSpecs.*.replicas",),
    "leaderworkerset.x-k8s.io:LeaderWorkerSet": ("spec.leaderWorkerTemplate.size",),
    "jobset.x-k8s.io:JobSet": ("spec.replicatedJobs.*.replicas", "spec.replicatedJobs.*.template.spec.parallelism"),
}
"""Numbers of pods that work on one thing together, multiplied by template; each is 1 where it is left out."""


def _many(pod: Pod, settings: SharedMemory) -> bool:
    """Whether several pods with GPUs work on one thing: an indexed Job's know of each other, others' do not."""
    spec = pod.resource.props.at("spec")
    if pod.kind == "batch:Job":
        return spec.text("completionMode") == "Indexed" and (spec.number("parallelism") or 1) > 1
    counts: dict[str, Decimal] = {}
    for path in _REPLICAS.get(pod.kind, ()):
        for names, view in views_at(pod.resource.props, path):
            number, label = view.number(), ".".join(names)
            counts[label] = counts.get(label, Decimal(1)) * (Decimal(1) if number is None else number)
    with_gpus = {each.label for each in pod.resource.parts(PODS) if each.gpus(settings)}
    return sum(count for label, count in counts.items() if label in with_gpus) > 1


def _shared_memory(pod: Pod, settings: SharedMemory) -> Iterator[str]:
    most = max(pod.gpus(settings).values(), default=0)
    if not (most > 1 or (most and settings.jobs and _many(pod, settings))) or pod.spec.flag("hostIPC"):
        return
    for container in pod.containers:
        if any(container.gpus(settings).values()):
            wrong = _too_small(pod, container, settings.least)
            if wrong:
                yield f"container {container.view.text('name')} {wrong}"


def _too_small(pod: Pod, container: Container, least: str) -> str:
    """What is wrong with a container's /dev/shm; empty where nothing is."""
    write = f"an emptyDir of medium Memory there, with a sizeLimit of {least} or more"
    mounts = [each for each in container.view.items("volumeMounts") if _is_shm(each)]
    if not mounts:
        return f"shares GPUs' data through the 64Mi that /dev/shm has by itself; mount {write}"
    name = mounts[-1].text("name")
    volume = next((each for each in pod.spec.items("volumes") if each.text("name") == name), View(None))
    if volume.text("emptyDir", "medium") != "Memory":
        return f"has volume {name} at /dev/shm, which is not in memory; mount {write}"
    size = volume.number("emptyDir", "sizeLimit")
    if size is None:
        return f"has volume {name} at /dev/shm without a sizeLimit; write {least} or more, within the memory limit"
    if size < (quantity(least) or 0):
        return f"has {volume.text('emptyDir', 'sizeLimit')} at /dev/shm, of volume {name}; write {least} or more"
    return ""


def _is_shm(mount: View) -> bool:
    return mount.text("mountPath").rstrip("/") == "/dev/shm"  # noqa: S108 - the mount that is judged


SHARED_MEMORY: Final = Rule(
    name="shared-memory",
    says="Pods whose GPUs work together have enough shared memory.",
    why="NCCL and data loaders exchange data through /dev/shm, which has 64Mi unless a pod says otherwise: they fail in"
    " the midst of a run, or take slower ways.",
    mend="Mount an emptyDir with `medium: Memory` and a `sizeLimit` at /dev/shm; it counts as the pod's memory.",
    link="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
    severity=Severity.MEDIUM,
    level=ADVICE,
    on=PODS,
    judge=lambda pod, settings: settings.of_tenant(pod.resource, _shared_memory(pod, settings)),
    settings=SharedMemory,
)


class Sharing(TenantGpus):
    """Whose pods may take turns on one GPU."""

    trusting: dict[str, list[str]] = Field(
        {}, description="Namespaces that trust one another, as patterns, by a name of your own for each group."
    )
    resources: list[str] = Field(
        ["*.shared"], description="Resource names of GPUs on which pods take turns, as patterns."
    )
    labels: dict[str, list[str]] = Field(
        {
            "nvidia.com/gpu.sharing-strategy": ["time-slicing", "mps"],
            "nvidia.com/gpu.product": ["*-SHARED"],
            "cloud.google.com/gke-gpu-sharing-strategy": ["time-sharing", "mps"],
        },
        description="Labels of nodes on whose GPUs pods take turns, each with its values as patterns.",
    )

    def trust(self, one: str, other: str) -> bool:
        """Whether two namespaces trust one another."""
        return one == other or any(
            all(any(fnmatchcase(each, pattern) for pattern in group) for each in (one, other))
            for group in self.trusting.values()
        )


def _taking_turns(pod: Pod, settings: Sharing) -> set[str]:
    """Resource names of its GPUs on which other pods may be, too."""
    gpus = set(pod.gpus(settings))
    if not gpus:
        return gpus
    chosen = nodes.values(pod)
    for label, patterns in settings.labels.items():
        if any(fnmatchcase(value, pattern) for value in chosen.get(label, ()) for pattern in patterns):
            return gpus
    return {name for name in gpus if any(fnmatchcase(name, pattern) for pattern in settings.resources)}


def _trust(pod: Pod, settings: Sharing, stack: Stack) -> Iterator[str]:
    names = _taking_turns(pod, settings)
    if not names:
        return

    def stranger(other: Pod) -> bool:
        return (
            not settings.trust(pod.namespace, other.namespace)
            and settings.tenant(other.namespace)
            and bool(names & _taking_turns(other, settings))
            and nodes.may_meet(nodes.values(pod), nodes.values(other))
        )

    other = stack.first(ASKING, stranger)
    if other is not None:
        yield (
            f"takes turns on {', '.join(sorted(names))} with {other.place}, and nothing keeps their memory apart; cut"
            " the GPUs by MIG, choose other nodes, or say that both namespaces trust one another"
        )


SHARING: Final = Rule(
    name="time-slicing-trust",
    says="Pods of different namespaces take turns on a GPU only where these trust one another.",
    why="Time-slicing keeps neither memory nor faults apart: one pod can starve the other or end its work.",
    mend="Cut GPUs by MIG, give each team nodes of its own, or list the namespaces under `trusting`.",
    link="https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/gpu-sharing.html",
    severity=Severity.HIGH,
    level=ADVICE,
    on=ASKING,
    judge=lambda pod, settings, stack: settings.of_tenant(pod.resource, _trust(pod, settings, stack)),
    settings=Sharing,
    whole=True,
)

RULES: Final[tuple[AnyRule, ...]] = (GPU_REQUEST, GPU_PER_NODE, VISIBLE_DEVICES, SHARED_MEMORY, SHARING)
