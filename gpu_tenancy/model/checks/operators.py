"""Checks of operators and other needs of a stack: missing and conflicting ones, and images for other CPUs."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from pydantic.alias_generators import to_camel

from gpu_tenancy.base.problems import Path, Problem, dotted
from gpu_tenancy.model.catalogue import find_machine
from gpu_tenancy.model.catalogue.operators import OperatorChart, chart_values, operators
from gpu_tenancy.model.catalogue.preflight import needs
from gpu_tenancy.model.catalogue.rows import Architecture
from gpu_tenancy.model.catalogue.storage import caches
from gpu_tenancy.model.checks.workloads import workloads
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.fabric import pod_fabric
from gpu_tenancy.model.plan.needs import INTEL, has, has_plugin, installed_by, predates, reason
from gpu_tenancy.model.plan.object_storage import accelerated
from gpu_tenancy.model.plan.operators.gpus import INTEL_LABEL, allocates_gpus, runs_plugin
from gpu_tenancy.model.plan.pods import flavor_of
from gpu_tenancy.model.plan.pools import ResolvedPool
from gpu_tenancy.model.plan.queues import provisioning_checks
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.storage import service_of as storage_service
from gpu_tenancy.model.plan.storage import stored, with_snapshots
from gpu_tenancy.model.spec.cluster import service_of
from gpu_tenancy.model.spec.operators import Operator
from gpu_tenancy.model.spec.workloads import Training


def operator_problems(tree: Tree) -> Iterator[Problem]:
    """Missing operators, keys without effect, and conflicts between operators."""
    stack = tree.stack
    for name in operators():
        yield from _operator(tree, name, stack.operators.of(name))
    if {installed_by(tree, "keda"), installed_by(tree, "prometheus_adapter")} == {"here"}:
        rule = "conflicts with keda: both would serve the same metric"
        fix = "install only the one that metrics.by names"
        yield Problem(_place("prometheus_adapter"), rule, fix, "here", (_place("keda"),))
    # A pod metric without a histogram, where this program installs the operators and so nothing serves it.
    named = stack.metrics.latency_p99 is not None and stack.metrics.histogram is None
    if named and stack.cluster.NODES_MADE and installed_by(tree, "prometheus_adapter") != "installed":
        rule = "is a metric that nothing serves, so the autoscaler would never scale"
        fix = "set metrics.histogram instead, or set operators.prometheusAdapter: installed if an adapter serves it"
        yield Problem(("metrics", "latencyP99"), rule, fix, stack.metrics.latency_p99, (("operators",),))
    if runs_plugin(tree) and allocates_gpus(tree):
        rule = "conflicts with the device plugin of gpuOperator: both would allocate the same GPUs"
        fix = (
            "set operators.gpuOperator.values.devicePlugin.enabled: false, or, if you need only compute domains, set"
            " operators.draDriver.values.resources.gpus.enabled: false"
        )
        yield Problem(_place("dra_driver"), rule, fix, "here", (_place("gpu_operator"),))
    key, value = INTEL_LABEL
    for pool in tree.gpu_pools(INTEL) if installed_by(tree, "intel_device_plugin") == "here" else ():
        if pool.pool.labels.get(key) != value:
            rule = f"does not have the node label {key}, by which Intel's device plugin selects its nodes"
            place, about = ("pools", pool.name, "labels"), (_place("intel_device_plugin"),)
            yield Problem(place, rule, f'add {key}: "{value}"', about=about)


_CLUSTER: Final[tuple[Path, ...]] = (("cluster",),)


def _place(name: str) -> Path:
    return ("operators", to_camel(name))


def _operator(tree: Tree, name: str, operator: Operator) -> Iterator[Problem]:
    place, by, chart = _place(name), installed_by(tree, name), operators()[name].release
    for key in ("version", "digest", "values") if by != "here" else ():
        if value := getattr(operator, key):
            rule = f"has no effect: {to_camel(name)} is {by}" + ("" if operator.install else " by default")
            shown = value if isinstance(value, str) else None
            yield Problem((*place, key), rule, "set install: here, or remove it", shown, _CLUSTER)
    for keys, hint in chart_values()[chart].unknown(operator.values) if operator.values else ():
        rule = f"unknown value of chart {chart}, which Helm would ignore silently"
        yield Problem((*place, "values", *keys), rule, hint)
    if operator.install == "off" and (why := reason(tree, name)):
        about, text = why
        fix = f"set here (or installed, if it is installed already), or remove {to_camel(name)}"
        yield Problem(place, f"is not possible because the stack needs the operator: {text}", fix, "off", (about,))


_DRIVER: Final[Path] = ("operators", "draDriver")
_VERSION: Final = (1, 36)
"""Kubernetes from which the scheduler allocates devices for requests of `nvidia.com/gpu` (DRAExtendedResource is on by
default): https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/features/kube_features.go"""


def device_problems(tree: Tree) -> Iterator[Problem]:
    """Features that do not work with GPUs of the DRA driver, which pods request as before: `nvidia.com/gpu`."""
    stack = tree.stack
    if not allocates_gpus(tree):
        return
    creation = stack.cluster.creation
    if creation and predates(stack.cluster, _VERSION):
        rule = "is older than 1.36, from which the scheduler allocates GPUs of draDriver to pods"
        fix = "set 1.36, or operators.draDriver.values.resources.gpus.enabled: false and the device plugin"
        yield Problem(("cluster", "create", "version"), rule, fix, creation.version, about=(_DRIVER,))
    pools = {pool.name: pool for pool in tree.nvidia_pools}
    for pool in pools.values():
        yield from _pool(pool)
    by_volcano: list[Path] = [
        ("teams", team, "gangs", flavor)
        for team, spec in stack.teams.items()
        for flavor in spec.gangs
        if any(pool.name in pools for pool in tree.flavors[flavor].pools)
    ]
    by_volcano += [
        (*path, "gang")
        for _, path, workload in workloads(tree)
        if isinstance(workload, Training) and workload.gang and workload.gpus
    ]
    for place in by_volcano:
        rule = "is scheduled by Volcano, which does not allocate GPUs of draDriver to pods that request nvidia.com/gpu"
        yield Problem(place, rule, "remove it, or use the device plugin", about=(_DRIVER,))


def _pool(resolved: ResolvedPool) -> Iterator[Problem]:
    place, pool, mode = ("pools", resolved.name), resolved.pool, resolved.mode
    if mode and has_plugin(mode):
        rule = f"brings a device plugin ({mode.means}), which would allocate the same GPUs as draDriver"
        fix = "set another driver mode, or operators.draDriver.values.resources.gpus.enabled: false"
        yield Problem((*place, "driver"), rule, fix, pool.driver, about=(_DRIVER,))
    fix = "remove it, or use the device plugin"
    if pool.sharing:
        rule = "does not work with draDriver, which allocates whole GPUs to pods that request nvidia.com/gpu"
        yield Problem((*place, "sharing", pool.sharing.way), rule, fix, about=(_DRIVER,))
    if pool.topology:
        # https://github.com/kubernetes-sigs/kueue/tree/v0.19.2/keps/2941-DRA, under non-goals.
        rule = "does not work with draDriver: Kueue 0.19 cannot place pods by topology whose GPUs are allocated by DRA"
        yield Problem((*place, "topology"), rule, fix, about=(_DRIVER,))


_EVERYWHERE: Final[Architecture] = "amd64"  # every image has it; a described node without a machine type counts as one


def architecture_problems(tree: Tree) -> Iterator[Problem]:
    """Images for another architecture than their nodes': they end with "exec format error", or cannot be pulled."""
    for name, chart, known in _installed(tree):
        if known is not None:
            yield from _pods(tree, name, chart, known)
    for dataset, _, acceleration in accelerated(tree.stack.datasets):
        known = caches()[acceleration.runtime].architectures
        for pool in _lacking_architecture(tree.pools.values(), known):
            if dataset in tree.flavors[pool.flavor].caches.by_dataset:
                architecture = _architecture(pool)
                of_pool = f"pool {pool.name} ({architecture})"
                rule = f"has images for {', '.join(known)} only, but pods of its cache run in {of_pool}"
                others = [other for other, row in caches().items() if architecture in row.architectures]
                fix, place = f"set {' or '.join(others)}, or remove accelerate", ("datasets", dataset, "accelerate")
                yield Problem((*place, "runtime"), rule, fix, acceleration.runtime, (("pools", pool.name),))


def unknown_architectures(tree: Tree) -> list[str]:
    """Images that were not checked for Arm nodes of a stack; empty without Arm nodes."""
    pools = _lacking_architecture(tree.pools.values(), (_EVERYWHERE,))
    named = [
        f"the images of {to_camel(name)} {chart.version}"
        for name, chart, known in _installed(tree)
        if known is None and any(pool in pools for pool in _pools(tree, name, chart))
    ]
    flavors = {pool.flavor for pool in pools}
    own = [
        f"the image of {kind} {name} of team {team}"
        for team, spec in tree.stack.teams.items()
        for kind, specs in (("job", spec.training), ("server", spec.serving))
        for name, workload in specs.items()
        if (flavor := flavor_of(tree, team, workload)) and flavor.name in flavors
    ]
    return named + own


def _installed(environment: Environment) -> Iterator[tuple[str, OperatorChart, tuple[Architecture, ...] | None]]:
    """Charts that this program installs, with the architectures of their images (None: unknown or other version)."""
    for name, operator in operators().items():
        if installed_by(environment, name) == "here":
            version = environment.stack.operators.of(name).version
            for chart in operator.charts.values():
                has = chart.images.architectures if chart.images and version in {None, chart.version} else None
                yield name, chart.model_copy(update={"version": version or chart.version}), has


def _pods(tree: Tree, name: str, chart: OperatorChart, has: tuple[Architecture, ...]) -> Iterator[Problem]:
    """Nodes of another architecture on which pods of an operator can run: hooks of charts select no nodes."""
    operator = ("operators", to_camel(name))
    images = f"the images of {to_camel(name)} {chart.version}"
    rule = f"CPUs, but {images} are for {', '.join(has)} only, and its pods can run"
    fix = f"use a machine type with {has[0]} CPUs"
    repelling = {"NoSchedule", "NoExecute"}
    cpu_pools = [pool for pool in tree.pools.values() if not pool.gpus]
    open_to_all = [pool for pool in cpu_pools if repelling.isdisjoint(taint.effect for taint in pool.pool.taints)]
    for pool in _lacking_architecture([*_pools(tree, name, chart), *open_to_all], has):
        place, why = ("pools", pool.name, "machine"), f"has {_architecture(pool)} {rule} on these nodes"
        yield Problem(place, why, fix if pool.gpus else f"{fix}, or add a taint", pool.pool.machine, (operator,))
    creation = tree.stack.cluster.creation
    machine = find_machine(creation.system.machine, service_of(tree.stack.cluster)) if creation else None
    if machine and machine.architecture not in has:
        why = f"has {machine.architecture} {rule} on system nodes"
        yield Problem(("cluster", "create", "system", "machine"), why, fix, machine.name, (operator,))


def _pools(environment: Environment, name: str, chart: OperatorChart) -> list[ResolvedPool]:
    """The pools on whose nodes a chart has DaemonSets."""
    if chart.daemons == "every":
        return list(environment.pools.values())
    return list(environment.gpu_pools(operators()[name].gpus)) if chart.daemons == "gpus" else []


def _lacking_architecture(pools: Iterable[ResolvedPool], has: tuple[Architecture, ...]) -> list[ResolvedPool]:
    return [pool for pool in pools if _architecture(pool) not in has]


def _architecture(pool: ResolvedPool) -> Architecture:
    return pool.machine.architecture if pool.machine else _EVERYWHERE


def provider_problems(tree: Tree) -> Iterator[Problem]:
    """Needs of the stack that nothing provides, as far as the program and the stack tell."""
    for name, need in needs().items():
        place = next(places(tree, name), None)
        if place is not None and not has(tree.stack, name):
            which = f"{name}, which {need.of} need ({dotted(place)})"
            rule = f"does not include {which}: without {need.means}, they {need.without}"
            fix, about = f"add {name} if the cluster has it", (place, ("cluster",))
            yield Problem(("cluster", "provides"), rule, fix, about=about)


def places(tree: Tree, name: str) -> Iterator[Path]:
    """The places of a stack that have a need, by the need's name."""
    return _PLACES[name](tree)


def _claims(tree: Tree) -> Iterator[Path]:
    for name, team in tree.stack.teams.items():
        for place, storage in stored(team):
            if storage.storage_class is None and storage_service(tree.stack.cluster, storage)[1] is None:
                yield ("teams", name, *place)
    if tree.stack.metrics.storage and tree.stack.metrics.storage.storage_class is None:
        yield ("metrics", "storage")


def _datasets(tree: Tree, scheme: str) -> Iterator[Path]:
    for name, dataset in tree.stack.datasets.items():
        if dataset.scheme == scheme and dataset.accelerate is None:
            yield ("datasets", name)


def _workloads_with_efa(tree: Tree) -> Iterator[Path]:
    for team, path, workload in workloads(tree):
        flavor = flavor_of(tree, team, workload)
        fabric = pod_fabric(tree, flavor.name, workload) if flavor else None
        if fabric and fabric.name == "efa":
            yield path


def _exposed(tree: Tree) -> Iterator[Path]:
    for team, spec in tree.stack.teams.items():
        for name, server in spec.serving.items():
            if server.expose:
                yield ("teams", team, "serving", name, "expose")
        if spec.notebooks and spec.notebooks.expose:
            yield ("teams", team, "notebooks", "expose")


_PLACES: Final[Mapping[str, Callable[[Tree], Iterator[Path]]]] = {
    "networkPolicies": lambda tree: (("teams", name) for name in tree.stack.teams),
    "resourceMetrics": lambda tree: (
        server.written_at() for server in tree.stack.servers if server.autoscaled and server.scale_on.cpu is not None
    ),
    "defaultStorageClass": _claims,
    "s3Volumes": lambda tree: _datasets(tree, "s3"),
    "gcsVolumes": lambda tree: _datasets(tree, "gs"),
    "blobVolumes": lambda tree: _datasets(tree, "az"),
    "volumeSnapshots": lambda tree: (
        ("teams", team, "storage", name, "snapshots") for team, name, _, _ in with_snapshots(tree.stack.teams)
    ),
    "provisioningRequests": lambda tree: (
        ("pools", tree.flavors[check.flavor].pools[0].name) for check in provisioning_checks(tree)
    ),
    "efaDevices": _workloads_with_efa,
    "gateways": _exposed,
}
