"""Checks of servers: engines and models, declared load, and exposure outside of the cluster."""

from bisect import bisect
from collections.abc import Iterator, Mapping
from typing import Final

from pydantic.alias_generators import to_snake

from gpu_tenancy.base.problems import Path, Problem, dotted
from gpu_tenancy.base.quantity import format_bytes, format_duration
from gpu_tenancy.model.catalogue.pods import Engine, engines
from gpu_tenancy.model.checks.references import known_in
from gpu_tenancy.model.checks.secrets import declared, key_of
from gpu_tenancy.model.plan.environment import Flavor
from gpu_tenancy.model.plan.needs import predates
from gpu_tenancy.model.plan.pods import PodSize, flavor_of, limits, pod_size
from gpu_tenancy.model.plan.rollouts import Size, nodes_of
from gpu_tenancy.model.plan.servers import engine_of, grace_period, of_server
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.signals import KINDS, histogram_of, names_of, targets
from gpu_tenancy.model.resolve import ResolvedServer
from gpu_tenancy.model.spec.serving import NO_METRICS, Canary, NotebooksExpose, ServerExpose
from gpu_tenancy.model.spec.teams import Team
from gpu_tenancy.model.spec.workloads import Load

IMAGE_VOLUMES: Final = (1, 35)
"""Kubernetes whose pods can mount images without further settings:
https://kubernetes.io/docs/tasks/configure-pod-container/image-volumes/."""


def engine_problems(tree: Tree) -> Iterator[Problem]:
    """Servers whose engine, model, load or end contradicts the rest of the stack."""
    metrics, servers = tree.stack.metrics, list(tree.stack.servers)
    if metrics.by and metrics.histogram is None and all(server.metrics == NO_METRICS for server in servers):
        fix = "set histogram to the one that your servers expose, such as inference_latency_seconds, or remove by"
        yield Problem(("metrics",), "sets by without histogram, so nothing is measured", fix, about=(("teams",),))
    for server in servers:
        path, engine = server.path, engine_of(server)
        if engine:
            yield from _run(path, server, engine)
        if flavor := flavor_of(tree, server.team, server):
            yield from _gpus(tree, path, server, flavor)
        yield from _image_and_end(tree, path, server)
        yield from _level(path, server)
        yield from _signals(tree, path, server)
        pod = pod_size(tree, server.team, server)
        if server.load and pod:
            yield from _load(tree, server, server.load, pod)


def _run(path: Path, server: ResolvedServer, engine: Engine) -> Iterator[Problem]:
    """Keys that the engine needs, and keys that it sets itself."""
    if server.model is None:
        fix = "add it: {dataset: NAME}, {volume: NAME} or {image: IMAGE}"
        yield Problem((*path, "model"), f"required key is missing: {engine.title} serves a model", fix)
    if not server.gpus:
        yield Problem((*path, "gpus"), f"is too few: {engine.title} needs GPUs", "set 1 or more", "0")
    by = f"by engine: {server.engine}"
    for place, own in ((path, server), ((*path, "worker"), server.worker)):
        if own and own.command:
            rule, fix = f"is set {by} ({' '.join(engine.command)})", "remove it, or set engine: custom"
            yield Problem((*place, "command"), rule, fix, " ".join(own.command))
        for index, text in enumerate(own.args if own else ()):
            # The parser takes `_` for `-`, and `=` before the value.
            name = text.partition("=")[0]
            for argument in engine.arguments:
                if argument.name == name.replace("_", "-") or (argument.short and argument.short == name):
                    value = of_server(argument, server) if argument.of != "none" else None
                    rule = f"is set{'' if value is None else f' to {value}'} from {argument.key} {by}"
                    fix = f"remove it with its value, and change {argument.key}"
                    yield Problem((*place, "args", index), rule, fix, text)


def _image_and_end(tree: Tree, path: Path, server: ResolvedServer) -> Iterator[Problem]:
    """An image that pods cannot mount as a volume, and a grace period that the guards would reject."""
    cluster, guards = tree.stack.cluster, tree.stack.guards
    if server.model and server.model.image and predates(cluster, IMAGE_VOLUMES):
        since = ".".join(map(str, IMAGE_VOLUMES))
        rule = f"needs Kubernetes {since} or later to be mounted, but the cluster has {cluster.kubernetes}"
        fix = "use dataset or volume, or a later version"
        yield Problem((*path, "model", "image"), rule, fix, server.model.image, (("cluster",),))
    grace, most = grace_period(server), guards.periods.servers
    if grace is not None and server.drain is not None and tree.stack.guards_action != "off" and grace > most:
        bound = f"guards.grace.servers ({format_duration(most)})"
        rule = f"needs a grace period of {format_duration(grace)}, which exceeds {bound}"
        fix = f"set at most {format_duration(server.drain - (grace - most))}, or raise guards.grace.servers"
        yield Problem((*path, "drain"), rule, fix, format_duration(server.drain), (("guards",),))


def _gpus(tree: Tree, path: Path, server: ResolvedServer, flavor: Flavor) -> Iterator[Problem]:
    """GPUs between which the engine cannot split a model, or that cannot hold the model."""
    pools = [tree.pools[pool.name] for pool in flavor.pools if pool.name in tree.pools]
    engine, about = engine_of(server), (("pools",),)
    if shared := next((pool for pool in pools if pool.pool.sharing), None):
        if engine and server.gpus > 1:
            parts = f"parts of GPUs (pools.{shared.name}.sharing)"
            rule = f"are {parts}, between which {engine.title} cannot split a model"
            yield Problem((*path, "gpus"), rule, "set 1, or use a flavor with whole GPUs", str(server.gpus), about)
        return
    memory = min((pool.model.memory for pool in pools if pool.model), default=0)
    size, count = server.model.size if server.model else None, server.gpus * server.nodes
    part = engine.gpu_memory if engine else 100
    if size and memory and count and size > memory * count * part // 100:
        uses = f", of which {engine.title} uses {part} %" if engine else ""
        rule = f"does not fit the {count} {flavor.name} GPUs of a replica: {format_bytes(memory * count)}{uses}"
        least = -(-size * 100 // (memory * part * server.nodes))
        fix = f"set gpus to {least} or more, or use a larger flavor or more nodes"
        yield Problem((*path, "model", "size"), rule, fix, format_bytes(size), about)


def _level(path: Path, server: ResolvedServer) -> Iterator[Problem]:
    """Times that no metric measures, or that are between the buckets of its histogram."""
    engine, level = engine_of(server), server.service_level
    for key, within in (("firstToken", level.first_token), ("latency", level.latency)):
        place = (*path, "serviceLevel", key)
        if within is not None and not getattr(server.metrics, to_snake(key)):
            rule = f"is not measured: metrics.{key} of the server is not set"
            yield Problem(place, rule, "set it to the histogram of the server, or remove it", format_duration(within))
        elif within is not None and engine and within not in engine.buckets[key]:
            bounds = engine.buckets[key]
            above = min(max(bisect(bounds, within), 1), len(bounds) - 1)
            rule = f"is not a bound of the buckets of {engine.title}'s histogram"
            fix = f"set {format_duration(bounds[above - 1])} or {format_duration(bounds[above])}"
            yield Problem(place, rule, fix, format_duration(within))


def _signals(tree: Tree, path: Path, server: ResolvedServer) -> Iterator[Problem]:
    """Targets without a metric, and scaling to zero without a signal to start replicas again."""
    scale_on, metrics = server.scale_on, tree.stack.metrics
    place, about = (*path, "scaleOn"), (("metrics",),)
    for key, target in targets(scale_on).items():
        needed = " and ".join(f"metrics.{name}" for name in KINDS[key].metrics)
        if names_of(KINDS[key], server) is None:
            rule = f"needs {needed} of the server, so the autoscaler would never scale"
            yield Problem((*place, key), rule, "set the names of its metrics", f"{target:g}")
    flavor = flavor_of(tree, server.team, server)
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


def _load(tree: Tree, server: ResolvedServer, load: Load, pod: PodSize) -> Iterator[Problem]:
    """Servers without quota for the replicas of their load, or that scale too late for its latency."""
    nodes = nodes_of(pod.flavor, pod.amounts)
    size = Size(load.rate, load.per_replica, server.surge or 0, nodes, headroom=load.headroom == "node")
    yield from _replicas(tree, server, size, pod.flavor)
    target, path = server.scale_on.latency_p99, server.path
    if target is not None and load.latency is not None and target > load.latency:
        most = format_duration(load.latency)
        rule = f"is above the latency of the load, {most}: the autoscaler would add replicas too late"
        yield Problem((*path, "scaleOn", "latencyP99"), rule, f"set {most} or less", format_duration(target), (path,))


def _replicas(tree: Tree, server: ResolvedServer, size: Size, flavor: Flavor) -> Iterator[Problem]:
    has, further = server.replicas.max, server.burst.max if server.burst else 0
    if has + further >= size.replicas:
        return
    fix = f"raise it to {size.replicas - further}"
    owner = tree.queue_of(server.team)
    if flavor.resource and server.gpus:
        gpus = (size.peak - further) * server.nodes * server.gpus
        limit = limits(tree, owner, flavor, gang=False).get(flavor.resource, 0)
        if gpus > limit:
            fix += f", and {tree.key(owner, flavor.name, flavor.resource, 'limit')} from {limit} to {gpus}"
    if further:
        fix += f", or burst.max from {further} to {size.replicas - has}"
    if has + further >= size.needed:
        fix += ", or set load.headroom: none"
    rule = f"{f'and {further} of its burst ' if further else ''}cannot carry the load: {size.arithmetic()}"
    yield Problem((*server.path, "replicas", "max"), rule, fix, str(has), (server.path, ("pools",)))


MOST_BACKENDS: Final = 16
"""Services of a rule of an HTTPRoute: https://gateway-api.sigs.k8s.io/reference/spec/#httprouterule."""

_ALL: Final = 100


def exposure_problems(tree: Tree) -> Iterator[Problem]:
    """Hosts, Gateways and reaches that the team may not use, hosts of two servers, and wrong canaries."""
    hosts: dict[str, Path] = {}
    for team, spec in tree.stack.teams.items():
        for name, server in spec.serving.items():
            path: Path = ("teams", team, "serving", name)
            if server.canary:
                yield from _canary(tree.written.teams[team], path, server, server.canary)
            elif server.expose:
                yield from _exposed((*path, "expose"), spec, server, server.expose, hosts)
                yield from _parts(path, server.canaries)
        if spec.notebooks and spec.notebooks.expose:
            yield from _notebooks(("teams", team, "notebooks", "expose"), spec, spec.notebooks.expose, hosts)


def _notebooks(path: Path, spec: Team, expose: NotebooksExpose, hosts: dict[str, Path]) -> Iterator[Problem]:
    yield from _gateway((*path, "gateway"), spec, expose.gateway)
    for index, (name, host) in enumerate(expose.hosts.items()):
        place: Path = (*path, "names", index)
        yield from _host(place, spec, host, hosts, "set another name, or another domain")
        if name in spec.serving:
            server: Path = (*path[:2], "serving", name)
            yield Problem(place, f"is also the Service of {dotted(server)}", "set another name", name, (server,))


def _host(path: Path, spec: Team, host: str, hosts: dict[str, Path], another: str) -> Iterator[Problem]:
    place = (*path[:2], "network", "expose")
    if not any(host == one or (one.startswith("*.") and host.endswith(one[1:])) for one in spec.network.expose.hosts):
        rule, fix = f"is not in {dotted(place)}.hosts", "add it there, or use a host that is there"
        yield Problem(path, rule, fix, host, (place,))
    if (other := hosts.setdefault(host, path)) != path:
        yield Problem(path, f"is also {dotted(other)}", another, host, (other,))


def _gateway(path: Path, spec: Team, gateway: str) -> Iterator[Problem]:
    place = (*path[:2], "network", "expose")
    if gateway not in spec.network.expose.classes and not gateway.startswith(f"{path[1]}/"):
        rule, fix = f"is not in {dotted(place)}.classes", "add it there, or use a Gateway that is there"
        yield Problem(path, rule, fix, gateway, (place,))


def _exposed(
    path: Path, spec: Team, server: ResolvedServer, expose: ServerExpose, hosts: dict[str, Path]
) -> Iterator[Problem]:
    """The rules of the guard `expose`, which reads `network.expose` from the Namespace; and the key."""
    another = "set another host, or canary in place of expose if it gets a part of the requests"
    yield from _host((*path, "host"), spec, expose.host, hosts, another)
    yield from _gateway((*path, "gateway"), spec, expose.gateway)
    if expose.reach == "public" and spec.network.expose.reach != "public":
        place = (*path[:2], "network", "expose")
        rule, fix = f"exceeds {dotted(place)}.reach: internal", "set that to public, or remove it here"
        yield Problem((*path, "reach"), rule, fix, "public", (place,))
    if expose.api_key is None:
        return
    key = (*path, "apiKey")
    if engine_of(server) is None:
        rule = f"has no effect with engine: {server.engine}: only {' and '.join(engines())} is known to ask for a key"
        yield Problem(key, rule, "remove it, and set the variable that your server reads its key from under env")
    for index, text in enumerate(server.args):
        if text.partition("=")[0].replace("_", "-") == "--api-key":
            yield Problem((*path[:-1], "args", index), "overrides expose.apiKey", "remove it with its value", text)
    yield from declared(spec, expose.api_key.secret, (*key, "secret"))
    yield from key_of(spec, expose.api_key.secret, expose.api_key.key, (*key, "key"))


def _parts(path: Path, canaries: Mapping[str, int]) -> Iterator[Problem]:
    about: tuple[Path, ...] = tuple((*path[:-1], name) for name in canaries)
    if (total := sum(canaries.values())) > _ALL:
        rule = f"has canaries with more than 100 % of its requests: {' + '.join(map(str, canaries.values()))} = {total}"
        yield Problem(path, rule, "lower canary.weight of one of them", about=about)
    if len(canaries) >= MOST_BACKENDS:
        rule = f"has {len(canaries)} canaries, but a route has at most {MOST_BACKENDS} servers"
        yield Problem(path, rule, "remove some of them", about=about)


def _canary(spec: Team, path: Path, server: ResolvedServer, canary: Canary) -> Iterator[Problem]:
    others = {name: one for name, one in spec.serving.items() if name != path[-1]}
    place, of, main = (*path, "canary", "of"), canary.of, others.get(canary.of)
    yield from known_in(of, others, "server", place, path[:-1])
    if main is None:
        return
    about = ((*path[:-1], of),)
    if main.canary:
        fix = f"set {main.canary.of}, or another server that sets expose"
        yield Problem(place, "is itself a canary", fix, of, about)
    elif main.expose is None:
        yield Problem(place, "has no host", f"set expose of {of}, or remove canary", of, about)
    elif engine_of(server) != engine_of(main):
        rule = f"runs engine: {main.engine}, so both would answer other requests and ask for other keys"
        yield Problem(place, rule, f"set engine: {main.engine} here too", of, about)
    elif server.model and main.model and (theirs := main.model.served) != server.model.served:
        rule = f"serves a model that requests call {theirs}, so this one ({server.model.served}) refuses them"
        yield Problem(place, rule, f"set model.name: {theirs} here too", of, about)
