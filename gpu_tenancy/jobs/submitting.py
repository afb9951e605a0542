"""Builds the object of a job from a short description, and fills in queue and node settings."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import Json, at, maps_at, text_at, texts_at
from gpu_tenancy.base.problems import nearest
from gpu_tenancy.base.quantity import CLAIMED, CPU, MEMORY, amounts, is_extended
from gpu_tenancy.cluster.budgets import container_rules
from gpu_tenancy.cluster.cluster_queues import ClusterQueue
from gpu_tenancy.cluster.dry_run import created
from gpu_tenancy.cluster.nodes import read_nodes
from gpu_tenancy.cluster.pods import Manifest, label, name_of
from gpu_tenancy.cluster.queues import NO_LOCAL_QUEUE, Queues
from gpu_tenancy.cluster.reading import State
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import FORBIDDEN, ApiError
from gpu_tenancy.kueue.api import UNCONSTRAINED
from gpu_tenancy.model.manifests.jobs import job_manifest
from gpu_tenancy.model.manifests.pods import rights
from gpu_tenancy.model.names import ACCOUNT, BUCKET, HOLD, USER, Runtime
from gpu_tenancy.model.plan.datasets import STORAGE_GROUP, Mount, Mounts
from gpu_tenancy.model.plan.guards import FACTS
from gpu_tenancy.model.plan.pods import exchange_data, usual_shared_memory
from gpu_tenancy.model.plan.pools import GPU_TAINT_VALUE, NVIDIA, NodeTaint
from gpu_tenancy.model.plan.secrets import References
from gpu_tenancy.model.plan.workloads import SHIPPED, JobPlan, PodPlan, RolePlan
from gpu_tenancy.model.spec.data import Scratch
from gpu_tenancy.model.spec.roles import HEAD, KINDS, WORKER
from gpu_tenancy.model.spec.secrets import Variable
from gpu_tenancy.model.spec.workloads import Training

_LONGEST: Final = 63  # characters of the value of a label
_UNITS: Final = {CPU: 1000, MEMORY: 2**30}  # sizes of pods are multiples
# Head of a Ray cluster if the namespace's defaults are not readable; no tasks run on the head.
_HEAD: Final = {CPU: 2000, MEMORY: 8 * 2**30}
_USUAL: Final = Training.model_fields
_ENFORCED: Final = "pod-security.kubernetes.io/enforce"
_RESTRICTED: Final = "restricted"


@dataclass(frozen=True, slots=True)
class Wish:
    """A job as a person describes it; `secrets` has the name and the key of a Secret by variable."""

    image: str
    command: Sequence[str] = ()
    name: str = ""  # empty for a name that the API server generates from `train-`
    gpus: int = 1  # of each pod
    nodes: int = 1  # number of pods, which all start together
    flavor: str = ""  # of the GPUs; empty for any of the queue
    framework: Runtime = "job"  # `job`: equal pods that know their index
    priority: str = ""  # class; empty for the team's
    deadline: int | None = None  # maximum run time in seconds; None for none of its own
    cpu: str = ""  # CPUs of each pod, such as `8`; empty for its GPUs' share
    memory: str = ""  # of each pod, such as `64Gi`; empty for its GPUs' share
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    secrets: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    mounts: Mapping[str, str] = field(default_factory=dict[str, str])  # paths by claim
    user: str = ""  # owner, as a label; empty for none
    args: Sequence[str] = ()  # of the image's own command, or of `command`
    code: str = ""  # archive of `job_files.packed`; the command runs in its folder; empty for none
    datasets: frozenset[str] = frozenset()  # claims of `mounts` that are datasets
    shared_memory: int | None = None  # /dev/shm in bytes; 0: the container runtime's default; None: a stack's default
    scratch: Scratch | None = None  # temporary space on the node
    stays: bool = True  # node autoscalers leave the pods where they run
    retries: int = _USUAL["retries"].default  # before failure; a TrainJob has its runtime's
    keep: int = _USUAL["keep"].default  # seconds after its end; a TrainJob has its runtime's, a RayJob none


def user_label(username: str) -> str:
    """A user name (address, ARN, `system:serviceaccount:ml:ci`) as a label: `anna` for `anna@example.com`."""
    name = re.split("[/:]", username)[-1].partition("@")[0]
    return re.sub(r"[^A-Za-z0-9._-]", "-", name)[:_LONGEST].strip("._-")


@dataclass(frozen=True, slots=True)
class Terms:
    """Requirements and defaults of a namespace for its pods."""

    restricted: bool = False  # rejects pods that may run as root
    account: str | None = None  # ServiceAccount of workloads; None for the default
    priority: str = ""  # class of workloads without one; empty if guards set it, if any
    deadline: int | None = None  # maximum run time in seconds of jobs without one; None likewise


def read_terms(cluster: Cluster, team: str, state: State, image: str) -> Terms:
    """Reads the terms of a team's namespace; `state` has the kinds of `fit`.

    Without the right to read the Namespace, uses a dry run of a pod; guards then set priority and deadline. Raises
    UnreachableError if the cluster does not answer.
    """
    try:
        account = ACCOUNT if cluster.exists("v1", "ServiceAccount", ACCOUNT, team) else None
    except ApiError as error:
        if error.status != FORBIDDEN:
            raise
        account = None
    found = next((space for space in state.of("Namespace") if name_of(space) == team), None)
    if found is None:
        return Terms(_refuses_root(cluster, team, image), account)
    deadline = text_at(found, "metadata", "annotations", f"{FACTS}default-deadline")
    return Terms(
        label(found, _ENFORCED) == _RESTRICTED,
        account,
        text_at(found, "metadata", "annotations", f"{FACTS}default-priority"),
        int(deadline) if deadline else None,
    )


def _refuses_root(cluster: Cluster, team: str, image: str) -> bool:
    """Whether Pod Security rejects a pod that meets `restricted` except that it may run as root."""
    container: Json = {"name": "train", "image": image, "securityContext": rights()}
    security: Json = {"seccompProfile": {"type": "RuntimeDefault"}}
    spec: Json = {"securityContext": security, "containers": [container]}
    metadata: Json = {"generateName": "train-", "namespace": team}
    try:
        created(cluster, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    except ApiError as error:
        return f'violates PodSecurity "{_RESTRICTED}' in error.message
    return False


def job_of(wish: Wish, team: str, state: State, terms: Terms | None = None) -> dict[str, Any]:
    """The Job, TrainJob or RayJob of a wish, equal to the same job of a stack.

    Queue, nodes, tolerations, CPU and memory come from readable objects of the kinds of `fit`, or else from the
    namespace's defaults, with `nvidia.com/gpu`. Raises ConsoleError if the namespace has no queue, the queue does not
    have the flavor or GPUs, or a command is missing.
    """
    terms = terms or Terms()
    ray = KINDS[wish.framework].submits
    if wish.code and ray:
        fix = "bring it by the image, or by a claim of the team with --mount"
        raise ConsoleError("--code: cannot be combined with --framework ray, whose workers run no command", fix)
    if wish.code and not wish.command:
        raise ConsoleError("--code: no command", "add it after `--`: it runs where the code is")
    if ray and not wish.command:
        raise ConsoleError("--framework ray: no command", "add it after `--`: the head of the cluster runs it")
    queue, place = placed(wish, team, state)
    pod = pod_of(wish, place, team, state, terms)
    roles = [RolePlan(WORKER, wish.nodes, replace(pod, command=(), args=()) if ray else pod)]
    if ray:
        roles.insert(0, RolePlan(HEAD, 1, _head(wish, roles[0].pod, team, state)))
    plan = JobPlan(
        name=wish.name,
        team=team,
        queue=queue,
        framework=wish.framework,
        roles=tuple(roles),
        gang=False,
        retries=wish.retries,
        deadline=wish.deadline or terms.deadline,
        keep=wish.keep,
        runtime=SHIPPED.get(wish.framework),
        entrypoint=(*wish.command, *wish.args) if ray else (),
        user=wish.user,
    )
    return job_manifest(plan)


def pod_of(wish: Wish, place: "Place", team: str, state: State, terms: Terms) -> PodPlan:
    """Pods of a wish."""
    shared = wish.shared_memory
    if shared is None and exchange_data(wish.gpus, wish.nodes + KINDS[wish.framework].submits):
        shared = usual_shared_memory(place.amounts[MEMORY]) if MEMORY in place.amounts else None
    elif shared is None:
        shared = 0
    secrets = {name: Variable.model_construct(secret=of, key=key) for name, (of, key) in wish.secrets.items()}
    return PodPlan(
        image=wish.image,
        command=tuple(wish.command),
        args=tuple(wish.args),
        env=dict(wish.env),
        amounts=place.amounts,
        node_labels=dict(place.labels),
        tolerated=place.taints,
        priority=wish.priority or terms.priority or None,
        shared_memory=shared,
        volumes=_mounts(wish, team, state),
        references=References(secrets),
        topology=place.topology,
        stays=wish.stays,
        non_root=terms.restricted,
        account=terms.account,
        code=wish.code,
    )


def _head(wish: Wish, worker: PodPlan, team: str, state: State) -> PodPlan:
    """The head of a Ray cluster runs on nodes without GPUs, if the queue has any."""
    _, place = placed(replace(wish, gpus=0, cpu="", memory="", flavor="" if wish.gpus else wish.flavor), team, state)
    head = replace(worker, amounts=_defaults(state) or _HEAD, shared_memory=wish.shared_memory or 0)
    if not place.flavors:
        return head
    return replace(head, node_labels=dict(place.labels), tolerated=place.taints, topology=place.topology)


def _mounts(wish: Wish, team: str, state: State) -> Mounts:
    """Volumes of a pod: datasets, then storage of the team."""
    claims = {name_of(claim): claim for claim in state.of("PersistentVolumeClaim", team)}
    cached = {name_of(dataset) for dataset in state.of("Dataset", team)}
    of_buckets = {name for name, claim in claims.items() if text_at(claim, "metadata", "annotations", BUCKET)}
    datasets = [name for name in wish.mounts if name in wish.datasets | cached | of_buckets]
    storage = [name for name in wish.mounts if name not in datasets]

    def writes(name: str) -> bool:
        modes = at(claims.get(name, {}), "spec", "accessModes")
        return isinstance(modes, list) and "ReadWriteMany" in modes

    mounts = [
        Mount(f"dataset-{index}", name, wish.mounts[name], not writes(name), cached=name in cached)
        for index, name in enumerate(datasets)
    ]
    mounts += [
        Mount(f"storage-{index}", name, wish.mounts[name], read_only=False) for index, name in enumerate(storage)
    ]
    return Mounts(tuple(mounts), wish.scratch, group=STORAGE_GROUP if storage else None)


def placed(wish: Wish, team: str, state: State) -> "tuple[str, Place]":
    """Queue and pod requirements of a wish. Raises ConsoleError without a queue that has the flavor and GPUs."""
    queues = Queues(state)
    queue = queues.usual(team)
    if not queue and state.sees("LocalQueue"):
        raise ConsoleError(f"namespace {team}: no queue to submit to", NO_LOCAL_QUEUE)
    return queue or team, _place(wish, queues, queues.homes.get(team, {}).get(queue, ""))


def scheduled(job: Mapping[str, Any], schedule: str) -> dict[str, Any]:
    """The CronJob of a Job, which Kueue queues at each run; runs do not overlap. `schedule` has five fields, in UTC.

    The queue label is on the Job, not on the CronJob. Raises ConsoleError if it is not a Job, or has no name.
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
    """Requirements of pods for their nodes; `topology` has annotations for Kueue, if all flavors have a topology."""

    amounts: Mapping[str, int]  # requests and limits, in base units
    labels: Mapping[str, str] = field(default_factory=dict[str, str])  # node selector
    taints: tuple[NodeTaint, ...] = ()  # tolerated
    topology: Mapping[str, str] = field(default_factory=dict[str, str])
    flavors: tuple[str, ...] = ()  # readable flavors of the queue on which they can run


_LEAST: Final = 2**20  # bytes of memory; fewer lack their unit


def _place(wish: Wish, queues: Queues, name: str) -> Place:
    queue = queues.cluster_queues.get(name)
    written = {CPU: wish.cpu, MEMORY: wish.memory}
    sizes = amounts({resource: amount for resource, amount in written.items() if amount})
    if sizes.get(MEMORY, _LEAST) < _LEAST:
        raise ConsoleError(f"memory: {wish.memory} is {sizes[MEMORY]} bytes", f"write its unit: {wish.memory}Gi")
    flavors = {name_of(flavor): flavor for flavor in queues.state.of("ResourceFlavor")}
    if queue is None:
        taint = NodeTaint(NVIDIA, GPU_TAINT_VALUE, "NoSchedule")
        return Place({**sizes, **({NVIDIA: wish.gpus} if wish.gpus else {})}, {}, (taint,) if wish.gpus else ())
    # Each flavor of a group lists all of its resources, with 0 of those that its nodes do not have.
    offered = [line for line, quota in queue.spec.quotas.items() if quota.nominal or quota.borrowing_limit != 0]
    with_gpus = {flavor for flavor, resource in offered if _is_gpu(resource)}
    # Pods without GPUs stay away from nodes with GPUs, whose taint only pods with GPUs may tolerate.
    lines = [(of, name) for of, name in offered if (_is_gpu(name) if wish.gpus else of not in with_gpus)]
    known = dict.fromkeys(flavor for flavor, _ in lines)
    if wish.flavor and wish.flavor not in known:
        of_gpus = "GPUs" if wish.gpus else "CPUs"
        problem = f"flavor {wish.flavor}: queue {queue.name} has no {of_gpus} of it"
        raise ConsoleError(problem, nearest(wish.flavor, known))
    lines = [line for line in lines if wish.flavor in {"", line[0]}]
    if wish.gpus and not lines:
        raise ConsoleError(f"queue {queue.name} has no GPUs", "ask the platform team for a guarantee, or set --gpus 0")
    names = dict.fromkeys(flavor for flavor, _ in lines)
    chosen = [flavors[flavor] for flavor in names if flavor in flavors]
    if wish.gpus:
        # The one resource of GPUs, or whole ones where there are also others.
        found = {resource for _, resource in lines}
        if len(found) > 1 and NVIDIA not in found:
            raise ConsoleError(f"queue {queue.name} has {', '.join(sorted(found))}", "choose by --flavor")
        resource = NVIDIA if NVIDIA in found else min(found)
        sizes = {**_share(resource, wish, chosen, queue, queues), **sizes, resource: wish.gpus}
    else:
        sizes = {**_defaults(queues.state), **sizes}
    levels = chosen and all(text_at(flavor, "spec", "topologyName") for flavor in chosen)
    return Place(
        sizes,
        texts_at(chosen[0], "spec", "nodeLabels") if len(names) == len(chosen) == 1 else {},
        tuple(_taints(chosen)),
        {UNCONSTRAINED: "true"} if levels else {},
        tuple(names),
    )


def _is_gpu(resource: str) -> bool:
    return is_extended(resource) and resource not in CLAIMED


def _taints(flavors: Sequence[Manifest]) -> Iterable[NodeTaint]:
    # Without the taint of a hold for maintenance.
    taints = (taint for flavor in flavors for taint in maps_at(flavor, "spec", "nodeTaints"))
    made = (NodeTaint(*(text_at(taint, key) for key in ("key", "value", "effect"))) for taint in taints)
    return dict.fromkeys(taint for taint in made if taint.key != HOLD)


def _bounds(state: State, key: str) -> Iterator[dict[str, int]]:
    # `key` is `defaultRequest` or `max` of the LimitRanges.
    yield from (amounts(at(rule, key)) for _, rule in container_rules(state.of("LimitRange")))


def _defaults(state: State) -> dict[str, int]:
    """CPU and memory of a pod without GPUs, equal to jobs of a stack: the namespace's default requests."""
    found: dict[str, int] = {}
    for bound in _bounds(state, "defaultRequest"):
        found |= bound
    return {name: max(unit, found[name] // unit * unit) for name, unit in _UNITS.items() if name in found}


def _share(
    resource: str, wish: Wish, flavors: Sequence[Manifest], queue: ClusterQueue, queues: Queues
) -> dict[str, int]:
    """CPU and memory of a pod: its GPUs' share of the smallest node less 10 %, and at most their share of the limit.

    The 10 % are for the node's daemons. A container has at most the namespace's maximum. Empty if nothing is readable.
    """
    limits = {line: queues.quotas.potential_available(queue.name, line) for line in queue.spec.quotas}
    share: dict[str, int] = {}
    for name, unit in _UNITS.items():
        of_node = [whole[name] * 9 // 10 // whole[resource] for whole in _nodes(resource, flavors, queues.state)]
        of_queue = [
            limits[flavor, name] // gpus
            for (flavor, counted), gpus in limits.items()
            if counted == resource and gpus and (flavor, name) in limits and wish.flavor in {"", flavor}
        ]
        most = [part * wish.gpus for part in (*of_node, *of_queue)]
        if most:
            amount = min((*most, *(bound[name] for bound in _bounds(queues.state, "max") if bound.get(name))))
            share[name] = max(unit, amount // unit * unit)
    return share


def _nodes(resource: str, flavors: Sequence[Manifest], state: State) -> Iterator[Mapping[str, int]]:
    selectors = [texts_at(flavor, "spec", "nodeLabels") for flavor in flavors]
    for node in read_nodes(state.of("Node"), ()):
        suits = any(labels.items() <= node.labels.items() for labels in selectors)
        if suits and node.whole.get(resource) and {CPU, MEMORY} <= node.whole.keys():
            yield node.whole
