"""Checks of servers with an engine, of their models, and of how their pods end."""

from bisect import bisect
from collections.abc import Iterator, Sequence
from typing import Final

from pydantic.alias_generators import to_snake

from gpu_tenancy.base.problems import Path, Problem
from gpu_tenancy.base.quantity import format_bytes, format_duration
from gpu_tenancy.model.catalogue.engines import Engine
from gpu_tenancy.model.plan.engines import engine_of, grace_period, of_server
from gpu_tenancy.model.plan.latency import histogram_of
from gpu_tenancy.model.plan.needs import predates, there
from gpu_tenancy.model.plan.pods import flavor_of
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.signals import KINDS, names_of, targets
from gpu_tenancy.model.plan.supply import Flavor
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.serving import NO_METRICS
from gpu_tenancy.model.spec.workloads import ScaleOn, Server

IMAGE_VOLUMES: Final = (1, 35)
"""Kubernetes whose pods can mount images without further settings:
https://kubernetes.io/docs/tasks/configure-pod-container/image-volumes/."""


def engine_problems(tree: Tree) -> Iterator[Problem]:
    """Servers whose engine, model or end contradicts the rest of the stack."""
    yield from _measured(tree.stack)
    for team, spec in tree.stack.teams.items():
        for name, server in spec.serving.items():
            path = ("teams", team, "serving", name)
            if engine := engine_of(server):
                yield from _run(path, server, engine)
            if flavor := flavor_of(tree, team, server):
                yield from _gpus(tree, path, server, flavor)
            yield from _image(tree, path, server)
            yield from _end(tree, path, server)
            yield from _level(path, server)
            yield from _signals(tree, path, server)
            if server.metrics.model_fields_set and not engine_of(server) and not there(tree, "prometheus"):
                rule, fix = (
                    "has no effect: operators.prometheus is off",
                    "set it to here or installed, or remove metrics",
                )
                yield Problem((*path, "metrics"), rule, fix, about=(("operators",),))


def _measured(stack: Stack) -> Iterator[Problem]:
    """Settings of Prometheus for metrics that no server has."""
    metrics, servers = stack.metrics, (server for team in stack.teams.values() for server in team.serving.values())
    idle = metrics.histogram is None and all(server.metrics == NO_METRICS for server in servers)
    if idle and metrics.model_fields_set & {"by", "prometheus"}:
        key = "by" if metrics.by else "prometheus"
        rule = f"sets {key} without histogram, so nothing is measured"
        fix = f"set histogram to the one that your servers expose, such as inference_latency_seconds, or remove {key}"
        yield Problem(("metrics",), rule, fix, about=(("teams",),))


def _run(path: Path, server: Server, engine: Engine) -> Iterator[Problem]:
    """What the engine needs, and what it sets itself."""
    if server.model is None:
        fix = "add it: {dataset: NAME}, {volume: NAME} or {image: IMAGE}"
        yield Problem((*path, "model"), f"required key is missing: {engine.title} serves a model", fix)
    if not server.gpus:
        yield Problem((*path, "gpus"), f"is too few: {engine.title} needs GPUs", "set 1 or more", "0")
    command = " ".join(engine.command)
    for key, own in (("", server), ("worker", server.worker)):
        place = (*path, key) if key else path
        if own and own.command:
            rule = f"is set by engine: {server.engine} ({command})"
            yield Problem((*place, "command"), rule, "remove it, or set engine: custom", " ".join(own.command))
        for index, text in enumerate(own.args if own else ()):
            yield from _argument((*place, "args", index), text, server, engine)


def _argument(place: Path, text: str, server: Server, engine: Engine) -> Iterator[Problem]:
    """An argument by hand that follows from a key; the parser takes `_` for `-`, and `=` before the value."""
    name = text.partition("=")[0]
    long = name.replace("_", "-")
    for argument in engine.arguments:
        if long == argument.name or (argument.short and name == argument.short):
            value = of_server(argument, server) if argument.of != "none" else None
            sets = f"is set from {argument.key}" if value is None else f"is set to {value} from {argument.key}"
            rule = f"{sets} by engine: {server.engine}"
            yield Problem(place, rule, f"remove it with its value, and change {argument.key}", text)


def _gpus(tree: Tree, path: Path, server: Server, flavor: Flavor) -> Iterator[Problem]:
    """GPUs that the engine cannot use as one, or that cannot hold the model."""
    pools = [tree.pools[pool.name] for pool in flavor.pools if pool.name in tree.pools]
    engine, about = engine_of(server), (("pools",),)
    shared = next((pool for pool in pools if pool.pool.sharing), None)
    if shared:
        if engine and server.gpus > 1:
            parts = f"parts of GPUs (pools.{shared.name}.sharing)"
            rule = f"are {parts}, between which {engine.title} cannot split a model"
            yield Problem((*path, "gpus"), rule, "set 1, or use a flavor with whole GPUs", str(server.gpus), about)
        return
    memory = min((pool.model.memory for pool in pools if pool.model), default=0)
    size = server.model.size if server.model else None
    if not size or not memory or not server.gpus:
        return
    count = server.gpus * server.nodes
    part = engine.gpu_memory if engine else 100
    room = memory * count * part // 100
    if size > room:
        uses = f", of which {engine.title} uses {part} %" if engine else ""
        rule = f"does not fit the {count} {flavor.name} GPUs of a replica: {format_bytes(memory * count)}{uses}"
        least = -(-size * 100 // (memory * part * server.nodes))
        fix = f"set gpus to {least} or more, or use a larger flavor or more nodes"
        yield Problem((*path, "model", "size"), rule, fix, format_bytes(size), about)


def _image(tree: Tree, path: Path, server: Server) -> Iterator[Problem]:
    cluster = tree.stack.cluster
    if server.model and server.model.image and predates(cluster, IMAGE_VOLUMES):
        since = ".".join(map(str, IMAGE_VOLUMES))
        rule = f"needs Kubernetes {since} or later to be mounted, but the cluster has {cluster.kubernetes}"
        fix = "use dataset or volume, or a later version"
        yield Problem((*path, "model", "image"), rule, fix, server.model.image, (("cluster",),))


def _level(path: Path, server: Server) -> Iterator[Problem]:
    """Times that no metric measures, or that are between the buckets of its histogram."""
    engine, level = engine_of(server), server.service_level
    for key, within in (("firstToken", level.first_token), ("latency", level.latency)):
        place = (*path, "serviceLevel", key)
        if within is not None and not getattr(server.metrics, to_snake(key)):
            rule = f"is not measured: metrics.{key} of the server is not set"
            yield Problem(place, rule, "set it to the histogram of the server, or remove it", format_duration(within))
        elif within is not None and engine and within not in engine.buckets[key]:
            below, above = _around(within, engine.buckets[key])
            rule = f"is not a bound of the buckets of {engine.title}'s histogram"
            yield Problem(place, rule, f"set {below} or {above}", format_duration(within))


def _signals(tree: Tree, path: Path, server: Server) -> Iterator[Problem]:
    """Targets that nothing measures, and replicas that nothing could start again."""
    scale_on, metrics = server.scale_on or ScaleOn(), tree.stack.metrics
    place, about = (*path, "scaleOn"), (("metrics",),)
    for key, target in targets(scale_on).items():
        needed = " and ".join(f"metrics.{name}" for name in KINDS[key].metrics)
        if names_of(KINDS[key], server) is None:
            rule = f"needs {needed} of the server, so the autoscaler would never scale"
            yield Problem((*place, key), rule, "set the names of its metrics", f"{target:g}")
    flavor = flavor_of(tree, str(path[1]), server)
    if scale_on.gpu is not None and not (server.gpus and flavor and str(flavor.resource).startswith("nvidia.com/")):
        rule, fix = "needs GPUs of NVIDIA, which its exporter measures", "remove it, or use another target"
        yield Problem((*place, "gpu"), rule, fix, str(scale_on.gpu), (("pools",),))
    if scale_on.query and metrics.by == "adapter":
        rule, fix = "needs KEDA: the adapter serves metrics of pods only", "set metrics.by: keda, or remove it"
        yield Problem((*place, "query"), rule, fix, about=about)
    served = scale_on.latency_p99 is not None and histogram_of(metrics, server) is None
    if served and len(scale_on.measured) > 1 and metrics.by != "adapter":
        rule = "is served by an adapter, and KEDA serves the other targets; a server has one autoscaler"
        fix = "set metrics.histogram in place of metrics.latencyP99, or remove one of them"
        yield Problem((*place, "latencyP99"), rule, fix, format_duration(scale_on.latency_p99 or 0), about)
    if server.autoscaled and server.replicas.min == 0 and (scale_on.query is None or metrics.by == "adapter"):
        rule = "needs scaleOn.query and KEDA: a server without pods measures nothing, and other autoscalers keep a pod"
        fix = "set scaleOn.query to what is requested of it, or set 1 or more"
        yield Problem((*path, "replicas", "min"), rule, fix, "0", about)


def _around(value: float, bounds: Sequence[float]) -> tuple[str, str]:
    place = min(max(bisect(bounds, value), 1), len(bounds) - 1)
    return format_duration(bounds[place - 1]), format_duration(bounds[place])


def _end(tree: Tree, path: Path, server: Server) -> Iterator[Problem]:
    """A grace period that the guards would reject."""
    grace, most = grace_period(server), tree.stack.guards.periods.servers
    if grace is None or server.drain is None or tree.stack.guards_action == "off" or grace <= most:
        return
    bound = f"guards.grace.servers ({format_duration(most)})"
    rule = f"needs a grace period of {format_duration(grace)}, which exceeds {bound}"
    fix = f"set at most {format_duration(server.drain - (grace - most))}, or raise guards.grace.servers"
    yield Problem((*path, "drain"), rule, fix, format_duration(server.drain), (("guards",),))
