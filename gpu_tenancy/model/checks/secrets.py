"""Checks of Secrets and images: undeclared ones, credentials in clear text, and registries that are not allowed."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from gpu_tenancy.base.problems import Path, Problem
from gpu_tenancy.model.catalogue.access import credential
from gpu_tenancy.model.checks.references import known_in
from gpu_tenancy.model.checks.workloads import workloads
from gpu_tenancy.model.names import UNREAD
from gpu_tenancy.model.plan.guards import is_allowed
from gpu_tenancy.model.plan.secrets import READER, store_of
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.spec.cluster import service_of
from gpu_tenancy.model.spec.people import ACR
from gpu_tenancy.model.spec.roles import Role
from gpu_tenancy.model.spec.secrets import DOCKER_CONFIG, EnvSource, Variables
from gpu_tenancy.model.spec.teams import Team
from gpu_tenancy.model.spec.workloads import Server, ServerWorker, Training


def secret_problems(tree: Tree) -> Iterator[Problem]:
    """Problems of teams' Secrets, of their use by workloads, and of images and their registries."""
    for name, team in tree.stack.teams.items():
        yield from _sources(tree, name, team)
        needed, budget = len(team.secrets), team.objects.secrets
        if budget is not None and needed > budget and not tree.stack.dispatches:
            rule, place = f"is less than the number of Secrets that the team declares ({needed})", ("teams", name)
            yield Problem((*place, "objects", "secrets"), rule, f"raise it to {needed}", str(budget), (place,))
        for index, secret in enumerate(team.workload_secrets):
            yield from declared(team, secret, ("teams", name, "workloadSecrets", index))
        yield from _pulling(team, team.image_pull_secrets, ("teams", name, "imagePullSecrets"))
    for name, path, workload in workloads(tree):
        yield from _workload(tree.stack.teams[name], path, workload)
    if tree.stack.images.allowed:
        yield from _images(tree, tree.stack.images.allowed)
    for index, registry in enumerate(tree.stack.images.registries):
        cloud = "azure" if ACR.fullmatch(registry) else "gcp"
        if tree.stack.cluster.cloud != cloud:
            rule = f"has no effect: its readers are identities of {cloud}, which are not managed for this cluster"
            fix = "remove it, and give the nodes the right to read the registry yourself"
            place = ("images", "registries")
            yield Problem((*place, index), rule, fix, registry, about=(("cluster",),))


def _workload(team: Team, path: Path, workload: Server | Training) -> Iterator[Problem]:
    containers: list[tuple[Path, Server | Training | Role | ServerWorker]] = [(path, workload)]
    if isinstance(workload, Training):
        containers += [((*path, "roles", name), role) for name, role in workload.roles.items()]
    elif workload.worker:
        containers.append(((*path, "worker"), workload.worker))
    for place, container in containers:
        yield from _environment(team, place, container.env)
        for key, texts in (("command", container.command), ("args", container.args)):
            for index, text in enumerate(texts):
                if text != UNREAD and (what := credential(text)):
                    fix = "put it in a Secret, and use a variable: $(NAME)"
                    yield Problem((*place, key, index), f"looks like a credential ({what}), {_READABLE}", fix)
    for index, source in enumerate(workload.env_from):
        yield from declared(team, source.secret, (*path, "envFrom", index, "secret"))
    yield from _twice(team, path, workload.env_from)
    for directory, source in workload.files.items():
        yield from declared(team, source.secret, (*path, "files", directory, "secret"))
        for key in source.items:
            yield from key_of(team, source.secret or "", key, (*path, "files", directory, "items", key))
    yield from _pulling(team, workload.image_pull_secrets, (*path, "imagePullSecrets"))


_READABLE: Final = "which is readable in the file and in pods"


def _environment(team: Team, path: Path, env: Variables) -> Iterator[Problem]:
    for name, variable in env.items():
        place = (*path, "env", name)
        if variable.secret:
            yield from declared(team, variable.secret, (*place, "secret"))
            yield from key_of(team, variable.secret, variable.key or "", (*place, "key"))
        what = credential(variable.value, name) if variable.value and variable.value != UNREAD else None
        if what:
            fix = "create a Secret, and refer to it: {secret: NAME, key: KEY}"
            yield Problem(place, f"looks like a credential ({what}), {_READABLE}", fix)


def declared(team: Team, secret: str | None, place: Path) -> Iterator[Problem]:
    """If a team declares Secrets, its workloads can use no others."""
    if team.secrets:
        yield from known_in(secret, team.secrets, "Secret", place, ("teams", str(place[1]), "secrets"))


def key_of(team: Team, secret: str, key: str, place: Path) -> Iterator[Problem]:
    """A key that a Secret of the team does not have, if its keys are known."""
    known = team.secrets[secret].known_keys if secret in team.secrets else None
    if known is not None:
        yield from known_in(key, known, "key", place, ("teams", str(place[1]), "secrets", secret))


def _twice(team: Team, path: Path, sources: list[EnvSource]) -> Iterator[Problem]:
    """Of several sources with the same variable, Kubernetes silently uses the last one."""
    whole = Counter((source.secret, source.config_map, source.prefix) for source in sources)
    if again := next((one for one, number in whole.items() if number > 1), None):
        yield Problem((*path, "envFrom"), f"names {again[0] or again[1]} twice", "remove one of them")
    variables = Counter(
        f"{source.prefix}{key}"
        for source in dict.fromkeys(sources)
        if source.secret in team.secrets
        for key in sorted(team.secrets[source.secret].known_keys or ())
    )
    for name, number in sorted(variables.items()):
        if number > 1 and not again:
            yield Problem((*path, "envFrom"), f"sets variable {name} twice", "set prefix for one of the sources")


def _pulling(team: Team, secrets: Iterable[str], path: Path) -> Iterator[Problem]:
    for index, name in enumerate(secrets):
        yield from declared(team, name, (*path, index))
        secret = team.secrets.get(name)
        if secret and secret.existing is None and secret.type != DOCKER_CONFIG:
            rule, about = f"has type {secret.type}, with which no image can be pulled", (*path[:2], "secrets")
            fix = f"set teams.{path[1]}.secrets.{name}.type: {DOCKER_CONFIG}"
            yield Problem((*path, index), rule, fix, name, about=(about,))


def _sources(tree: Tree, name: str, team: Team) -> Iterator[Problem]:
    if READER in team.service_accounts:
        rule = "is the ServiceAccount that reads the team's secrets in the cloud"
        yield Problem(("teams", name, "serviceAccounts", READER), rule, "rename it", READER)
    service = service_of(tree.stack.cluster)
    for key, secret in team.secrets.items():
        manager = store_of(secret.from_ or "")[0].manager if secret.from_ else service
        if service not in {"existing", manager}:
            rule = f"is in another cloud than the cluster ({service}), whose identities have no rights there"
            fix = f"use a secret of {service}, or set existing: true and create the Secret by hand"
            yield Problem(("teams", name, "secrets", key, "from"), rule, fix, secret.from_, about=(("cluster",),))


def _images(tree: Tree, allowed: list[str]) -> Iterator[Problem]:
    images: list[tuple[Path, str | None]] = []
    for _, path, workload in workloads(tree):
        images.append(((*path, "image"), workload.image))
        if isinstance(workload, Training):
            images += [((*path, "roles", name, "image"), role.image) for name, role in workload.roles.items()]
        elif workload.model:
            images.append(((*path, "model", "image"), workload.model.image))
    for name, team in tree.stack.teams.items():
        for index, image in enumerate(team.notebooks.images if team.notebooks else ()):
            images.append((("teams", name, "notebooks", "images", index), image))
    fix = f"use an image of {' or '.join(allowed)}, or add its registry to images.allowed"
    for path, image in images:
        # Only the engine knows an image that is secret or late.
        if image and image != UNREAD and ".invalid/" not in image and not is_allowed(image, allowed):
            yield Problem(path, "is not from an allowed registry", fix, image, about=(("images",),))
