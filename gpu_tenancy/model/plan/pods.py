"""The size of a workload's pods, their flavor, and their annotations for the levels of its network."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from gpu_tenancy.base.quantity import CPU, MEMORY
from gpu_tenancy.kueue.api import GROUP, PREFERRED, REQUIRED, UNCONSTRAINED
from gpu_tenancy.model.plan.environment import Flavor, gang_amounts
from gpu_tenancy.model.plan.pools import Levels
from gpu_tenancy.model.plan.servers import engine_of, with_engine
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.resolve import ResolvedServer
from gpu_tenancy.model.spec.teams import Team
from gpu_tenancy.model.spec.workloads import Server, Training, Workload

_CPU = 1000
_MIB = 2**20
_GIB = 2**30


@dataclass(frozen=True, slots=True)
class PodSize:
    """The flavor and the requests (same as limits) of a pod: CPU, memory, GPUs by the flavor's resource."""

    flavor: Flavor
    amounts: dict[str, int]


def is_gang(workload: Workload) -> bool:
    """Whether Volcano schedules it, outside of the team's Kueue queue."""
    return isinstance(workload, Training) and workload.scheduler == "volcano"


def parts(tree: Tree, team: str, workload: ResolvedServer | Training) -> dict[str, ResolvedServer | Training]:
    """A workload's roles, each as a workload with the keys of its pods; a server of one node has one without a name.

    A role without GPUs runs on a flavor of CPUs, or on that of the others' GPUs if the team has none. It does not have
    the job's flavor of GPUs: Kueue would assign one of CPUs to it, and no node has the labels of both.
    """
    if isinstance(workload, ResolvedServer):
        return {**with_engine(workload)}
    roles = workload.parts
    for_gpus = next((part for part in roles.values() if part.gpus), None)
    if for_gpus is None or len(roles) == 1 or is_gang(workload):
        return dict(roles)
    flavor, placed = flavor_of(tree, team, for_gpus), {name for name, role in workload.roles.items() if role.flavor}
    of_gpus = {None, *(name for name, one in tree.flavors.items() if one.resource)}
    return {
        name: part.model_copy(update={"flavor": None if choices(tree, team, part) else flavor.name})
        if flavor and not part.gpus and name not in placed and part.flavor in of_gpus
        else part
        for name, part in roles.items()
    }


def choices(tree: Tree, team: str, workload: Workload) -> list[str]:
    """The flavors that a workload without `flavor` could run on."""
    if is_gang(workload):
        return [name for name in tree.stack.teams[team].gangs if name in tree.flavors]
    return [name for name in tree.shares_of(team) if (tree.flavors[name].resource is not None) == (workload.gpus > 0)]


def flavor_of(tree: Tree, team: str, workload: Workload) -> Flavor | None:
    """The flavor that a workload runs on: its own, or its team's only one; None if it is ambiguous."""
    if workload.flavor is not None:
        return tree.flavors.get(workload.flavor)
    names = choices(tree, team, workload)
    unique = len(names) == 1 or (names and workload.gpus == 0)
    return tree.flavors[names[0]] if unique else None


def pod_size(tree: Tree, team: str, workload: Workload) -> PodSize | None:
    """The size of a pod; None if its flavor is ambiguous."""
    flavor = flavor_of(tree, team, workload)
    if flavor is None:
        return None
    share = _part(tree, team, flavor, workload)
    cpu = workload.cpu if workload.cpu is not None else max(_CPU, share[CPU] // _CPU * _CPU)
    memory = workload.memory if workload.memory is not None else max(_GIB, share[MEMORY] // _GIB * _GIB)
    gpus = {flavor.resource: workload.gpus} if flavor.resource and workload.gpus else {}
    return PodSize(flavor, {CPU: cpu, MEMORY: memory, **gpus})


def limits_of(workload: Workload) -> dict[str, int]:
    """Limits of CPU and memory of a server that differ from its requests."""
    own = workload.limits if isinstance(workload, Server) else None
    amounts = {CPU: own.cpu, MEMORY: own.memory} if own else {}
    return {resource: amount for resource, amount in amounts.items() if amount is not None}


def shared_memory(workload: Workload, size: PodSize) -> int:
    """Size of /dev/shm in bytes: as in the stack, else a quarter of the memory for several GPUs, and for engines.

    NCCL and data loaders exchange data there, and the container runtime's default is 64Mi:
    https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html.
    """
    if workload.shared_memory is not None:
        return workload.shared_memory
    pods = sum(workload.pods_by_role.values()) if isinstance(workload, (Server, Training)) else 1
    exchanges = exchange_data(workload.gpus, pods) or engine_of(workload)
    return usual_shared_memory(size.amounts[MEMORY]) if exchanges else 0


def exchange_data(gpus: int, pods: int) -> bool:
    """Whether GPUs of a workload exchange data, by the GPUs of a pod and the pods of all roles."""
    return gpus > 1 or (gpus == 1 and pods > 1)


def usual_shared_memory(memory: int) -> int:
    """Size of /dev/shm in bytes of a pod with this memory whose GPUs exchange data."""
    return memory // 4 // _MIB * _MIB


def _part(tree: Tree, team: str, flavor: Flavor, workload: Workload) -> dict[str, int]:
    """The GPUs' share of the machine, minus 10 % for daemons, within the team's limit; without GPUs, team defaults."""
    owner: Team = tree.stack.teams[team]
    if not workload.gpus or flavor.resource is None:
        request = owner.containers.default_request
        return {CPU: request.cpu or _CPU, MEMORY: request.memory or _GIB}
    machine = {resource: part * workload.gpus * 9 // 10 for resource, part in flavor.per_gpu.items()}
    of_team = limits(tree, team, flavor, gang=is_gang(workload))
    gpus = of_team.get(flavor.resource, 0)
    return {r: min(part, of_team[r] * workload.gpus // gpus) if gpus else part for r, part in machine.items()}


def limits(tree: Tree, team: str, flavor: Flavor, *, gang: bool) -> dict[str, int]:
    """A team's limits in a flavor by resource: of its queue, or of its gangs."""
    if gang:
        spec = tree.stack.teams[team].gangs.get(flavor.name)
        return gang_amounts(flavor, spec) if spec else {}
    return {resource: share.limit or 0 for resource, share in tree.shares_of(team).get(flavor.name, {}).items()}


def topology_request(levels: Levels, workload: Workload) -> dict[str, str]:
    """Annotations of a workload's pods on a flavor with these levels.

    Pods without a condition have one, too: in a queue with flavors without a topology, Kueue does not admit pods
    without any of the annotations to this flavor ("supports only TopologyAwareScheduling").
    https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/flavorassigner/tas_flavorassigner.go
    """
    if not levels or (isinstance(workload, Training) and workload.scheduler == "volcano"):
        return {}
    together = workload.together if isinstance(workload, (Server, Training)) else None
    if together is None or together.level is None:
        return {UNCONSTRAINED: "true"}
    label = next((item.label for item in levels if item.level == together.level), None)
    return {REQUIRED if together.required else PREFERRED: label} if label else {UNCONSTRAINED: "true"}


def placed_roles(roles: Mapping[str, Workload]) -> tuple[str, ...]:
    """The roles of a workload that `together` applies to: roles with GPUs, or all if none has any."""
    return tuple(name for name, part in roles.items() if part.gpus) or tuple(roles)


def grouped(requests: Mapping[str, Mapping[str, str]], placed: Collection[str]) -> dict[str, dict[str, str]]:
    """Annotations by role, so that Kueue selects one part of the network for both of two placed roles.

    Pods of other roles run on any nodes. `model.checks` refuses sets that Kueue cannot group:
    https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobframework/tas_validation.go
    """
    made = {name: dict(request) for name, request in requests.items()}
    for name, request in made.items():
        if request and name not in placed:
            made[name] = {UNCONSTRAINED: "true"}
        elif request and len(placed) > 1 and UNCONSTRAINED not in request:
            request[GROUP] = "job"
    return made
