"""Operators: what the stack needs and has not, what excludes each other, values that a chart would ignore."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, cast

from pydantic.alias_generators import to_camel

from gpu_tenancy.model.catalogue.chart_values import chart_values
from gpu_tenancy.model.catalogue.clouds import driver_mode
from gpu_tenancy.model.plan.gpu_operator import merged
from gpu_tenancy.model.plan.operators import OPERATORS, chart_of, operator_of, releases
from gpu_tenancy.model.plan.operators.gpus import INTEL_LABEL, dra_values, nvidia_values
from gpu_tenancy.model.plan.operators.needs import (
    AMD,
    INTEL,
    NVIDIA,
    certified,
    gpu_pools,
    has_gangs,
    installed_by,
    measured_by,
    trains_pytorch,
)
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.problems import Path, Problem, dotted
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.cluster import service_of


def operator_problems(tree: Tree) -> Iterator[Problem]:
    """What is wrong with the operators of a stack."""
    stack = tree.stack
    for name in OPERATORS:
        yield from _said_in_vain(stack, name)
        yield from _values(stack, name)
        if operator_of(stack, name).install == "off" and (lacking := _LACKING.get(name)):
            yield from _lacking(name, lacking(stack))
    yield from _one_metrics_server(stack)
    yield from _served(stack)
    yield from _one_advertiser(stack)
    yield from _intel_labels(stack)
    yield from _taken_namespaces(stack)


def _place(name: str) -> Path:
    return ("operators", to_camel(name))


def _served(stack: Stack) -> Iterator[Problem]:
    """A metric that is only named, where this program installs what there is: nobody serves it."""
    named = stack.metrics.latency_p99 is not None and stack.metrics.histogram is None
    if not named or not stack.cluster.NODES_MADE or installed_by(stack, "prometheus_adapter") == "installed":
        return
    rule = "is a metric that nothing here serves, so an autoscaler would never act on it"
    mend = "write metrics.histogram in its place, or operators.prometheusAdapter: installed, where one serves it"
    yield Problem(("metrics", "latencyP99"), rule, mend, stack.metrics.latency_p99, (("operators",),))


def _said_in_vain(stack: Stack, name: str) -> Iterator[Problem]:
    """A version or values of what is not installed here."""
    said, by = operator_of(stack, name), installed_by(stack, name)
    if by == "here":
        return
    what = f"is for what is installed here, and {to_camel(name)} is {by}" + ("" if said.install else " by default")
    for key, given in (("version", said.version), ("values", said.values or None)):
        if given is not None:
            value = given if isinstance(given, str) else None
            yield Problem((*_place(name), key), what, "write install: here, or leave it out", value)


def _values(stack: Stack, name: str) -> Iterator[Problem]:
    chart = chart_of(name)
    for keys, hint in chart_values()[chart].unknown(operator_of(stack, name).values):
        rule = f"is no value of chart {chart}, and Helm would ignore it without a word"
        yield Problem((*_place(name), "values", *keys), rule, hint)


def _lacking(name: str, why: tuple[Path, str] | None) -> Iterator[Problem]:
    if why is None:
        return
    about, reason = why
    mend = f"write here (or installed, where somebody else did), or leave {to_camel(name)} out"
    yield Problem(
        _place(name), f"leaves nothing there for what the stack needs it for: {reason}", mend, "off", (about,)
    )


def _kueue(stack: Stack) -> tuple[Path, str] | None:
    return (("teams",), "the teams' queues") if stack.teams else None


def _volcano(stack: Stack) -> tuple[Path, str] | None:
    return (("teams",), "teams have gangs") if has_gangs(stack) else None


def _trainer(stack: Stack) -> tuple[Path, str] | None:
    return (("teams",), "jobs of framework pytorch are TrainJobs") if trains_pytorch(stack) else None


def _gpu_operator(stack: Stack) -> tuple[Path, str] | None:
    """Where the nodes are made here, a pool whose driver mode leaves the device plugin to the operator."""
    if not stack.cluster.NODES_MADE or installed_by(stack, "dra_driver") != "off":
        return None
    for name in gpu_pools(stack, NVIDIA):
        mode = driver_mode(service_of(stack.cluster), stack.pools[name].driver)
        if mode is None or "nvidia.com/gpu.deploy.device-plugin" in mode.labels:
            continue
        if _enabled(mode.operator, "devicePlugin"):
            return ("pools", name), f"pool {name} has a driver whose device plugin it brings ({mode.means})"
    return None


def _vendor(vendor: str) -> Callable[[Stack], tuple[Path, str] | None]:
    def lacking(stack: Stack) -> tuple[Path, str] | None:
        pool = next(gpu_pools(stack, vendor), None) if stack.cluster.NODES_MADE else None
        return (("pools", pool), f"nothing else offers the GPUs of pool {pool} to pods") if pool else None

    return lacking


def _cert_manager(stack: Stack) -> tuple[Path, str] | None:
    name = next(certified(stack), None)
    return (_place(name), f"{to_camel(name)}, installed here, has its webhooks' certificates from it") if name else None


def _measuring(*operators: str) -> Callable[[Stack], tuple[Path, str] | None]:
    """What brings a histogram of latency to the autoscalers, where a server scales on it."""

    def lacking(stack: Stack) -> tuple[Path, str] | None:
        if measured_by(stack) not in operators:
            return None
        for team, spec in stack.teams.items():
            for name, server in spec.serving.items():
                if server.scale_on and server.scale_on.latency_p99 is not None:
                    place = ("teams", team, "serving", name, "scaleOn", "latencyP99")
                    return place, f"{dotted(place)} wants a metric"
        return None

    return lacking


_LACKING: Final[Mapping[str, Callable[[Stack], tuple[Path, str] | None]]] = {
    "kueue": _kueue,
    "volcano": _volcano,
    "trainer": _trainer,
    "cert_manager": _cert_manager,
    "gpu_operator": _gpu_operator,
    "amd_gpu_operator": _vendor(AMD),
    "intel_device_plugin": _vendor(INTEL),
    "prometheus": _measuring("keda", "prometheus_adapter"),
    "keda": _measuring("keda"),
    "prometheus_adapter": _measuring("prometheus_adapter"),
}
"""What the stack needs each operator for, with the place that needs it; None where it can do without."""


def _one_metrics_server(stack: Stack) -> Iterator[Problem]:
    if installed_by(stack, "keda") == installed_by(stack, "prometheus_adapter") == "here":
        rule = "is installed beside keda, and two servers of one metric would scale one Deployment against each other"
        yield Problem(
            _place("prometheus_adapter"), rule, "keep the one that metrics.by names", "here", (_place("keda"),)
        )


def _one_advertiser(stack: Stack) -> Iterator[Problem]:
    """A node's whole GPUs are offered once: by the GPU Operator's device plugin, or by the DRA driver."""
    if installed_by(stack, "dra_driver") != "here" or installed_by(stack, "gpu_operator") != "here":
        return
    plugin = merged(nvidia_values(stack), stack.operators.gpu_operator.values)
    driver = merged(dra_values(stack), stack.operators.dra_driver.values)
    if _enabled(plugin, "devicePlugin") and _enabled(driver, "resources", "gpus"):
        rule = "offers whole GPUs beside the device plugin of gpuOperator, and each GPU would be given away twice"
        mend = (
            "write operators.gpuOperator.values.devicePlugin.enabled: false, or, for compute domains alone,"
            " operators.draDriver.values.resources.gpus.enabled: false"
        )
        yield Problem(_place("dra_driver"), rule, mend, "here", (_place("gpu_operator"),))


def _enabled(values: Mapping[str, Any], *section: str) -> bool:
    """Whether a section of values is on: charts have them on where `enabled` is left out."""
    found: Any = values
    for key in (*section, "enabled"):
        found = cast("Mapping[str, Any]", found).get(key) if isinstance(found, Mapping) else None
    return found is not False


def _intel_labels(stack: Stack) -> Iterator[Problem]:
    if installed_by(stack, "intel_device_plugin") != "here":
        return
    key, value = INTEL_LABEL
    for name in gpu_pools(stack, INTEL):
        if stack.pools[name].labels.get(key) != value:
            rule = f"lacks the node label {key}, by which Intel's device plugin finds its nodes"
            yield Problem(
                ("pools", name, "labels"), rule, f'write {key}: "{value}"', about=(_place("intel_device_plugin"),)
            )


def _taken_namespaces(stack: Stack) -> Iterator[Problem]:
    """A team in an operator's namespace: its jobs would not wait in its queue, as operators' pods do not."""
    taken = {release.namespace: release.name for release in releases(stack)}
    for team in stack.teams:
        if team in taken:
            yield Problem(("teams", team), f"is the namespace of {taken[team]}", "name the team otherwise", team)
