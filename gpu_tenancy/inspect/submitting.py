"""The object of a job that a person describes in a few words: what it needs of the queue and its nodes is filled in."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gpu_tenancy.base.amounts import amount_text, amounts
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import at, maps_at, text_at, texts_at
from gpu_tenancy.base.problems import nearest
from gpu_tenancy.base.quantity import CLAIMED, CPU, MEMORY, is_extended
from gpu_tenancy.inspect.cluster_queues import ClusterQueue
from gpu_tenancy.inspect.code import ANNOTATION, code_volumes, unpacking
from gpu_tenancy.inspect.demand import PRIORITY_LABEL, QUEUE_LABEL
from gpu_tenancy.inspect.nodes import read_nodes
from gpu_tenancy.inspect.pods import Manifest, name_of
from gpu_tenancy.inspect.queues import NO_LOCAL_QUEUE, Queues
from gpu_tenancy.inspect.reading import State
from gpu_tenancy.model.names import HOLD, NODE, USER, Runtime
from gpu_tenancy.model.plan.pools import NVIDIA
from gpu_tenancy.model.plan.workloads import SHIPPED
from gpu_tenancy.model.spec.roles import KINDS

_LONGEST: Final = 63
"""Characters of the value of a label."""
_HEAD: Final = {CPU: "2", MEMORY: "8Gi"}
"""What the head of a Ray cluster has, on which no tasks run."""
_CPU: Final = 1000
_GIB: Final = 2**30


@dataclass(frozen=True, slots=True)
class Wish:
    """A job as a person describes it.

    Attributes:
        name: of the object; empty for one that the API server generates from `train-`.
        gpus: of each pod.
        nodes: number of pods, which all start together.
        flavor: of the GPUs; empty for any of the queue.
        framework: `job` for pods that are alike and know their index, else what connects them.
        priority: class; empty for the team's.
        deadline: maximum run time in seconds; None for none of its own.
        cpu: CPUs of each pod, such as `8`; empty for its GPUs' share.
        memory: of each pod, such as `64Gi`; empty for its GPUs' share.
        env: variables.
        secrets: variables with a key of a Secret: name of the Secret, and key.
        mounts: paths by PersistentVolumeClaim.
        user: whose job it is, as a label; empty for nobody's.
        args: arguments of the image's own command, or of `command`.
        code: archive of the folder in which the command runs, as `code.packed` has it; empty for none.
    """

    image: str
    command: Sequence[str] = ()
    name: str = ""
    gpus: int = 1
    nodes: int = 1
    flavor: str = ""
    framework: Runtime = "job"
    priority: str = ""
    deadline: int | None = None
    cpu: str = ""
    memory: str = ""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    secrets: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    mounts: Mapping[str, str] = field(default_factory=dict[str, str])
    user: str = ""
    args: Sequence[str] = ()
    code: str = ""

    @property
    def marks(self) -> dict[str, Any]:
        """The metadata of pods, as a field of their template; empty without."""
        return {"metadata": {"annotations": {ANNOTATION: self.code}}} if self.code else {}


def user_label(username: str) -> str:
    """A user of the API server as the value of a label: of `anna@example.com` the part `anna`.

    Args:
        username: as the API server knows it, such as an address, an ARN, or `system:serviceaccount:ml:ci`.
    """
    name = re.split("[/:]", username)[-1].partition("@")[0]
    return re.sub(r"[^A-Za-z0-9._-]", "-", name)[:_LONGEST].strip("._-")


def job_of(wish: Wish, team: str, state: State) -> dict[str, Any]:
    """The Job, TrainJob or RayJob of a wish, in the queue of the team.

    Queue, tolerations and, with GPUs, CPU and memory come from the objects that the user may read. What is not
    readable is left to the defaults of the namespace; GPUs then are `nvidia.com/gpu`.

    Args:
        wish: what the person wants.
        team: the namespace.
        state: with the kinds of `fit`.

    Raises:
        ConsoleError: the namespace has no queue, or the queue does not have the flavor or GPUs.
    """
    labels, place = placed(wish, team, state)
    metadata: dict[str, Any] = {"name": wish.name} if wish.name else {"generateName": "train-"}
    metadata |= {"namespace": team, "labels": labels}
    if wish.priority and wish.framework != "job":
        labels[PRIORITY_LABEL] = wish.priority
    api_version, kind = KINDS[wish.framework].api
    if wish.framework in SHIPPED:
        spec = _train_job(wish, place, SHIPPED[wish.framework])
    else:
        spec = _ray_job(wish, place) if wish.framework == "ray" else _job(wish, place)
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def placed(wish: Wish, team: str, state: State) -> "tuple[dict[str, str], Place]":
    """Labels of what a person submits, and what its pods need of the queue and its nodes; see `job_of`.

    Raises:
        ConsoleError: the namespace has no queue, or the queue does not have the flavor or GPUs.
    """
    queues = Queues(state)
    queue = queues.usual(team)
    if not queue and state.sees("LocalQueue"):
        raise ConsoleError(f"namespace {team}: no queue to submit to", NO_LOCAL_QUEUE)
    labels = {QUEUE_LABEL: queue or team, **({USER: wish.user} if wish.user else {})}
    return labels, _place(wish, queues, queues.homes.get(team, {}).get(queue, ""))


def scheduled(job: Mapping[str, Any], schedule: str) -> dict[str, Any]:
    """The CronJob that creates a Job regularly, which Kueue queues each time; while one runs, no other is created.

    Args:
        job: with its queue label, which the CronJob itself must not have.
        schedule: five fields, in UTC.

    Raises:
        ConsoleError: it is not a Job, or has no name.
    """
    metadata = dict(job["metadata"])
    if job["kind"] != "Job":
        raise ConsoleError("--schedule: a CronJob creates Jobs only", "remove --framework")
    if "name" not in metadata:
        raise ConsoleError("--schedule: no name", "set --name")
    labels = metadata["labels"]
    own = {"name": metadata["name"], "namespace": metadata["namespace"]}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {**own, "labels": {key: labels[key] for key in (USER,) if key in labels}},
        "spec": {
            "schedule": schedule,
            "timeZone": "Etc/UTC",
            "concurrencyPolicy": "Forbid",
            "jobTemplate": {"metadata": {"labels": labels}, "spec": job["spec"]},
        },
    }


@dataclass(frozen=True, slots=True)
class Place:
    """What pods need to get to their nodes; amounts are requests and limits, as Kubernetes writes them."""

    amounts: Mapping[str, str]
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    tolerations: tuple[Mapping[str, str], ...] = ()

    @property
    def spec(self) -> dict[str, Any]:
        """The fields of a pod."""
        fields = {"nodeSelector": dict(self.labels), "tolerations": [dict(one) for one in self.tolerations]}
        return {key: value for key, value in fields.items() if value}


def _place(wish: Wish, queues: Queues, name: str) -> Place:
    """What pods of a ClusterQueue need."""
    queue = queues.cluster_queues.get(name)
    sizes = {CPU: wish.cpu, MEMORY: wish.memory}
    sizes = {resource: amount for resource, amount in sizes.items() if amount}
    flavors = {name_of(flavor): flavor for flavor in queues.state.of("ResourceFlavor")}
    if queue is None:
        taint = ({"key": NVIDIA, "operator": "Exists", "effect": "NoSchedule"},) if wish.gpus else ()
        return Place({**sizes, **({NVIDIA: str(wish.gpus)} if wish.gpus else {})}, {}, taint)
    lines = [line for line in queue.spec.quotas if _is_gpu(line[1]) == bool(wish.gpus)]
    known = dict.fromkeys(flavor for flavor, _ in lines)
    if wish.flavor and wish.flavor not in known:
        of_gpus = "GPUs" if wish.gpus else "CPUs"
        raise ConsoleError(
            f"flavor {wish.flavor}: queue {queue.name} has no {of_gpus} of it", nearest(wish.flavor, known)
        )
    lines = [line for line in lines if wish.flavor in {"", line[0]}]
    if wish.gpus and not lines:
        raise ConsoleError(f"queue {queue.name} has no GPUs", "ask the platform team for a guarantee, or set --gpus 0")
    chosen = [flavors[flavor] for flavor in dict.fromkeys(flavor for flavor, _ in lines) if flavor in flavors]
    labels = texts_at(chosen[0], "spec", "nodeLabels") if wish.flavor and chosen else {}
    if not wish.gpus:
        return Place(sizes, labels)
    resource = _resource({resource for _, resource in lines}, queue)
    share = _share(resource, wish, chosen, queue, queues)
    return Place({**share, **sizes, resource: str(wish.gpus)}, labels, tuple(_tolerations(chosen)))


def _is_gpu(resource: str) -> bool:
    return is_extended(resource) and resource not in CLAIMED


def _resource(found: set[str], queue: ClusterQueue) -> str:
    """The one resource of GPUs, or whole ones where there are also others."""
    if len(found) > 1 and NVIDIA not in found:
        raise ConsoleError(f"queue {queue.name} has {', '.join(sorted(found))}", "choose by --flavor")
    return NVIDIA if NVIDIA in found else min(found)


def _tolerations(flavors: Sequence[Manifest]) -> list[dict[str, str]]:
    """Tolerations of all taints of some flavors, except those of a hold for maintenance."""
    taints = (taint for flavor in flavors for taint in maps_at(flavor, "spec", "nodeTaints"))
    keys = {(str(taint.get("key")), str(taint.get("effect"))) for taint in taints}
    return [{"key": key, "operator": "Exists", "effect": effect} for key, effect in sorted(keys) if key != HOLD]


def _share(
    resource: str, wish: Wish, flavors: Sequence[Manifest], queue: ClusterQueue, queues: Queues
) -> dict[str, str]:
    """CPU and memory of a pod: its GPUs' part of the smallest node less 10 %, and at most their part of the limit.

    The 10 % are for the node's own daemons. Both are as for the jobs of a stack; a container has at most what the
    namespace admits. Empty where nothing is readable.
    """
    limits = {line: queues.quotas.potential_available(queue.name, line) for line in queue.spec.quotas}
    share: dict[str, str] = {}
    for name, unit in ((CPU, _CPU), (MEMORY, _GIB)):
        of_node = [whole[name] * 9 // 10 // whole[resource] for whole in _nodes(resource, flavors, queues.state)]
        of_queue = [
            limits[flavor, name] // gpus
            for (flavor, counted), gpus in limits.items()
            if counted == resource and gpus and (flavor, name) in limits and wish.flavor in {"", flavor}
        ]
        most = [part * wish.gpus for part in (*of_node, *of_queue)]
        if most:
            amount = min((*most, *_maxima(name, queues.state)))
            share[name] = amount_text(name, max(unit, amount // unit * unit))
    return share


def _nodes(resource: str, flavors: Sequence[Manifest], state: State) -> Iterator[Mapping[str, int]]:
    """What nodes of some flavors have, if they have such GPUs."""
    selectors = [texts_at(flavor, "spec", "nodeLabels") for flavor in flavors]
    for node in read_nodes(state.of("Node"), ()):
        suits = any(labels.items() <= node.labels.items() for labels in selectors)
        if suits and node.whole.get(resource) and {CPU, MEMORY} <= node.whole.keys():
            yield node.whole


def _maxima(resource: str, state: State) -> Iterator[int]:
    """The most of a resource that containers of the namespace may have."""
    for bounds in state.of("LimitRange"):
        for bound in maps_at(bounds, "spec", "limits"):
            if text_at(bound, "type") == "Container" and (most := amounts(at(bound, "max")).get(resource)):
                yield most


def container_of(wish: Wish, place: Place) -> dict[str, Any]:
    """The container of a pod, without its name."""
    sizes = dict(place.amounts)
    sources = {name: {"secretKeyRef": {"name": of, "key": key}} for name, (of, key) in wish.secrets.items()}
    fields = {
        "image": wish.image,
        "command": unpacking(wish.command) if wish.code else list(wish.command),
        "args": list(wish.args),
        "env": [
            *({"name": name, "value": value} for name, value in wish.env.items()),
            *({"name": name, "valueFrom": source} for name, source in sources.items()),
        ],
        "resources": {"requests": sizes, "limits": sizes} if sizes else {},
    }
    return {key: value for key, value in fields.items() if value}


def volumes_of(wish: Wish) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The volumes of a pod, and their mounts. Pods with several GPUs exchange data by shared memory."""
    volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in wish.mounts]
    mounts = [{"name": claim, "mountPath": path} for claim, path in wish.mounts.items()]
    if wish.code:
        more = code_volumes()
        volumes, mounts = [*volumes, *more[0]], [*mounts, *more[1]]
    if wish.gpus > 1 or wish.gpus * wish.nodes > 1:
        volumes.append({"name": "shared-memory", "emptyDir": {"medium": "Memory"}})
        mounts.append({"name": "shared-memory", "mountPath": "/dev/shm"})  # noqa: S108 - where NCCL looks for it
    return volumes, mounts


def _job(wish: Wish, place: Place) -> dict[str, Any]:
    volumes, mounts = volumes_of(wish)
    container = {"name": "train", **container_of(wish, place), **({"volumeMounts": mounts} if mounts else {})}
    pod = {
        "restartPolicy": "Never",
        "containers": [container],
        **place.spec,
        **({"volumes": volumes} if volumes else {}),
    }
    if wish.priority:
        pod["priorityClassName"] = wish.priority
    return {
        "parallelism": wish.nodes,
        "completions": wish.nodes,
        "completionMode": "Indexed",
        **({"activeDeadlineSeconds": wish.deadline} if wish.deadline else {}),
        # An evicted pod is not a retry.
        "podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]},
        "template": {**wish.marks, "spec": pod},
    }


def _train_job(wish: Wish, place: Place, runtime: str) -> dict[str, Any]:
    container = container_of(wish, place)
    if "resources" in container:
        container["resourcesPerNode"] = container.pop("resources")
    volumes, mounts = volumes_of(wish)
    pod = place.spec
    if volumes:
        pod |= {"volumes": volumes, "containers": [{"name": NODE, "volumeMounts": mounts}]}
    jobs = [{"name": NODE, "template": {"spec": {"template": {**wish.marks, "spec": pod}}}}]
    patch = {
        "manager": "gpu-tenancy.dev/submit",
        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}},
    }
    return {
        "runtimeRef": {"name": runtime},
        "trainer": {"numNodes": wish.nodes, **container},
        **({"activeDeadlineSeconds": wish.deadline} if wish.deadline else {}),
        **({"runtimePatches": [patch]} if pod else {}),
    }


def _ray_job(wish: Wish, place: Place) -> dict[str, Any]:
    """A RayJob whose command the head runs; each node is a worker.

    Raises:
        ConsoleError: there is no command.
    """
    if wish.code:
        fix = "bring it by the image, or by a claim of the team with --mount"
        raise ConsoleError("--code: cannot be combined with --framework ray, whose workers run no command", fix)
    if not wish.command:
        raise ConsoleError("--framework ray: no command", "add it after `--`: the head of the cluster runs it")
    volumes, mounts = volumes_of(wish)
    container = container_of(wish, place)
    for own in ("command", "args"):
        container.pop(own, None)
    shared: dict[str, Any] = {"volumes": volumes} if volumes else {}
    mounted = {"name": "ray", **container, **({"volumeMounts": mounts} if mounts else {})}
    head = {"containers": [{**mounted, "resources": {"requests": _HEAD, "limits": _HEAD}}], **shared}
    workers = {"containers": [mounted], **place.spec, **shared}
    group = {"groupName": "worker", "rayStartParams": {}, "template": {"spec": workers}}
    count = dict.fromkeys(("replicas", "minReplicas", "maxReplicas"), wish.nodes)
    return {
        "entrypoint": shlex.join([*wish.command, *wish.args]),
        # In the other modes, a pod or container of its own submits the command, which needs quota too.
        "submissionMode": "HTTPMode",
        "shutdownAfterJobFinishes": True,
        **({"activeDeadlineSeconds": wish.deadline} if wish.deadline else {}),
        "rayClusterSpec": {
            "headGroupSpec": {"rayStartParams": {"num-cpus": "0"}, "template": {"spec": head}},
            "workerGroupSpecs": [{**group, **count}],
        },
    }
