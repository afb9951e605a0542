"""Checks of what clients outside of the cluster reach: `network.expose` of the team allows it, or nothing does."""

from collections.abc import Iterator
from typing import Final

from gpu_tenancy.base.problems import Path, Problem, dotted
from gpu_tenancy.model.catalogue.engines import engines
from gpu_tenancy.model.checks.references import known_in
from gpu_tenancy.model.checks.secrets import declared, key_of
from gpu_tenancy.model.plan.engines import engine_of
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.spec.exposure import Canary, NotebooksExpose, ServerExpose
from gpu_tenancy.model.spec.teams import Team
from gpu_tenancy.model.spec.workloads import Server

MOST_BACKENDS: Final = 16
"""Services of a rule of an HTTPRoute: https://gateway-api.sigs.k8s.io/reference/spec/#httprouterule."""

_ALL: Final = 100
"""Percent of the requests."""


def exposure_problems(tree: Tree) -> Iterator[Problem]:
    """Hosts, Gateways and reaches that the team may not use, hosts of two servers, and wrong canaries."""
    hosts: dict[str, Path] = {}
    for team, spec in tree.stack.teams.items():
        for name, server in spec.serving.items():
            path = ("teams", team, "serving", name)
            if server.burst_of:
                continue
            if server.canary:
                yield from _canary(spec, path, server, server.canary)
            elif server.expose:
                yield from _allowed((*path, "expose"), team, spec, server.expose)
                yield from _key((*path, "expose", "apiKey"), spec, server, server.expose)
                yield from _parts(path, spec)
                other = hosts.setdefault(server.expose.host, (*path, "expose", "host"))
                if other != (*path, "expose", "host"):
                    fix = "set another host, or canary in place of expose if it gets a part of the requests"
                    yield Problem(
                        (*path, "expose", "host"), f"is also {dotted(other)}", fix, server.expose.host, (other,)
                    )
        if spec.notebooks and spec.notebooks.expose:
            yield from _notebooks(("teams", team, "notebooks", "expose"), team, spec, spec.notebooks.expose, hosts)


def _notebooks(path: Path, team: str, spec: Team, expose: NotebooksExpose, hosts: dict[str, Path]) -> Iterator[Problem]:
    yield from _gateway((*path, "gateway"), team, spec, expose.gateway)
    for index, (name, host) in enumerate(expose.hosts.items()):
        place: Path = (*path, "names", index)
        yield from _host(place, team, spec, host)
        if (other := hosts.setdefault(host, place)) != place:
            yield Problem(place, f"is also {dotted(other)}", "set another name, or another domain", host, (other,))
        if name in spec.serving:
            server: Path = ("teams", team, "serving", name)
            rule = f"is also the Service of {dotted(server)}"
            yield Problem(place, rule, "set another name", name, (server,))


def _host(path: Path, team: str, spec: Team, host: str) -> Iterator[Problem]:
    place = ("teams", team, "network", "expose")
    if not any(host == one or (one.startswith("*.") and host.endswith(one[1:])) for one in spec.network.expose.hosts):
        rule, fix = f"is not in {dotted(place)}.hosts", "add it there, or use a host that is there"
        yield Problem(path, rule, fix, host, (place,))


def _gateway(path: Path, team: str, spec: Team, gateway: str) -> Iterator[Problem]:
    place = ("teams", team, "network", "expose")
    if gateway not in spec.network.expose.classes and not gateway.startswith(f"{team}/"):
        rule, fix = f"is not in {dotted(place)}.classes", "add it there, or use a Gateway that is there"
        yield Problem(path, rule, fix, gateway, (place,))


def _allowed(path: Path, team: str, spec: Team, expose: ServerExpose) -> Iterator[Problem]:
    """The same rules as those of the guard `expose`, which knows `network.expose` from the Namespace."""
    allowed, place = spec.network.expose, ("teams", team, "network", "expose")
    yield from _host((*path, "host"), team, spec, expose.host)
    yield from _gateway((*path, "gateway"), team, spec, expose.gateway)
    if expose.reach == "public" and allowed.reach != "public":
        rule, fix = f"exceeds {dotted(place)}.reach: internal", "set that to public, or remove it here"
        yield Problem((*path, "reach"), rule, fix, "public", (place,))


def _key(path: Path, spec: Team, server: Server, expose: ServerExpose) -> Iterator[Problem]:
    if expose.api_key is None:
        return
    if engine_of(server) is None:
        known = " and ".join(engines())
        rule = f"has no effect with engine: {server.engine}: only {known} is known to ask for a key"
        fix = "remove it, and set the variable that your server reads its key from under env"
        yield Problem(path, rule, fix)
    for index, text in enumerate(server.args):
        if text.partition("=")[0].replace("_", "-") == "--api-key":
            yield Problem((*path[:-2], "args", index), "overrides expose.apiKey", "remove it with its value", text)
    yield from declared(spec, expose.api_key.secret, (*path, "secret"))
    yield from key_of(spec, expose.api_key.secret, expose.api_key.key, (*path, "key"))


def _parts(path: Path, spec: Team) -> Iterator[Problem]:
    canaries = {
        name: one.canary.weight for name, one in spec.serving.items() if one.canary and one.canary.of == path[-1]
    }
    about: tuple[Path, ...] = tuple((*path[:-1], name) for name in canaries)
    if (total := sum(canaries.values())) > _ALL:
        rule = f"has canaries with more than 100 % of its requests: {' + '.join(map(str, canaries.values()))} = {total}"
        yield Problem(path, rule, "lower canary.weight of one of them", about=about)
    if len(canaries) >= MOST_BACKENDS:
        rule = f"has {len(canaries)} canaries, but a route has at most {MOST_BACKENDS} servers"
        yield Problem(path, rule, "remove some of them", about=about)


def _canary(spec: Team, path: Path, server: Server, canary: Canary) -> Iterator[Problem]:
    others = {name: one for name, one in spec.serving.items() if name != path[-1] and not one.burst_of}
    place, main = (*path, "canary", "of"), others.get(canary.of)
    yield from known_in(canary.of, others, "server", place, path[:-1])
    if main is None:
        return
    about = ((*path[:-1], canary.of),)
    if main.canary:
        fix = f"set {main.canary.of}, or another server that sets expose"
        yield Problem(place, "is itself a canary", fix, canary.of, about)
    elif main.expose is None:
        yield Problem(place, "has no host", f"set expose of {canary.of}, or remove canary", canary.of, about)
    elif engine_of(server) != engine_of(main):
        rule = f"runs engine: {main.engine}, so both would answer other requests and ask for other keys"
        yield Problem(place, rule, f"set engine: {main.engine} here too", canary.of, about)
    elif server.model and main.model and server.model.served != main.model.served:
        rule = (
            f"serves a model that requests call {main.model.served}, so this one ({server.model.served}) refuses them"
        )
        yield Problem(place, rule, f"set model.name: {main.model.served} here too", canary.of, about)
