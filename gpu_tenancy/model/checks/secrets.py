"""Checks of Secrets and images: undeclared ones, credentials in clear text, and registries that are not allowed."""

from collections import Counter
from collections.abc import Iterable, Iterator

from gpu_tenancy.base.problems import Path, Problem
from gpu_tenancy.model.catalogue.credentials import credential
from gpu_tenancy.model.checks.references import known_in
from gpu_tenancy.model.checks.workloads import workloads
from gpu_tenancy.model.names import UNREAD
from gpu_tenancy.model.plan.guards import is_allowed
from gpu_tenancy.model.plan.secrets import READER, store_of
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.spec.cluster import service_of
from gpu_tenancy.model.spec.people import ACR
from gpu_tenancy.model.spec.secrets import DOCKER_CONFIG, EnvSource, FileSource, Variable, Variables
from gpu_tenancy.model.spec.teams import Team
from gpu_tenancy.model.spec.workloads import Server, Training

_ABOUT: tuple[Path, ...] = (("cluster",),)


def secret_problems(tree: Tree) -> Iterator[Problem]:
    """Problems of the Secrets of teams, and of how workloads use them."""
    for name, team in tree.stack.teams.items():
        yield from _sources(tree, name, team)
        yield from _budget(tree, name, team)
        for index, secret in enumerate(team.workload_secrets):
            yield from declared(team, secret, ("teams", name, "workloadSecrets", index))
        yield from _pulling(team, team.image_pull_secrets, ("teams", name, "imagePullSecrets"))
        for path, workload in workloads(name, team):
            yield from _workload(team, path, workload)


def _workload(team: Team, path: Path, workload: Server | Training) -> Iterator[Problem]:
    yield from _environment(team, path, workload.env)
    yield from _clear_texts(path, {"command": workload.command, "args": workload.args})
    for index, source in enumerate(workload.env_from):
        yield from declared(team, source.secret, (*path, "envFrom", index, "secret"))
    yield from _twice(team, path, workload.env_from)
    for directory, source in workload.files.items():
        yield from _files(team, (*path, "files", directory), source)
    yield from _pulling(team, workload.image_pull_secrets, (*path, "imagePullSecrets"))
    for name, role in workload.roles.items() if isinstance(workload, Training) else ():
        yield from _environment(team, (*path, "roles", name), role.env)
        yield from _clear_texts((*path, "roles", name), {"command": role.command, "args": role.args})
    if isinstance(workload, Server) and (worker := workload.worker):
        yield from _environment(team, (*path, "worker"), worker.env)
        yield from _clear_texts((*path, "worker"), {"command": worker.command, "args": worker.args})


def _environment(team: Team, path: Path, env: Variables) -> Iterator[Problem]:
    for name, variable in env.items():
        place = (*path, "env", name)
        if variable.secret:
            yield from declared(team, variable.secret, (*place, "secret"))
            yield from key_of(team, variable.secret, variable.key or "", (*place, "key"))
        yield from _clear_variable(place, name, variable)


def _clear_variable(place: Path, name: str, variable: Variable) -> Iterator[Problem]:
    what = credential(variable.value, name) if variable.value and variable.value != UNREAD else None
    if what:
        fix = "create a Secret, and refer to it: {secret: NAME, key: KEY}"
        yield Problem(place, f"looks like a credential ({what}), which is readable in the file and in pods", fix)


def _clear_texts(path: Path, lists: dict[str, list[str]]) -> Iterator[Problem]:
    for key, texts in lists.items():
        for index, text in enumerate(texts):
            if text != UNREAD and (what := credential(text)):
                rule = f"looks like a credential ({what}), which is readable in the file and in pods"
                yield Problem((*path, key, index), rule, "put it in a Secret, and use a variable: $(NAME)")


def declared(team: Team, secret: str | None, place: Path) -> Iterator[Problem]:
    """If a team declares Secrets, its workloads can use no others."""
    if team.secrets:
        yield from known_in(secret, team.secrets, "Secret", place, ("teams", str(place[1]), "secrets"))


def key_of(team: Team, secret: str, key: str, place: Path) -> Iterator[Problem]:
    """A key that a Secret of the team does not have, if its keys are known."""
    known = team.secrets[secret].known_keys if secret in team.secrets else None
    if known is not None:
        yield from known_in(key, known, "key", place, ("teams", str(place[1]), "secrets", secret))


def _files(team: Team, place: Path, source: FileSource) -> Iterator[Problem]:
    yield from declared(team, source.secret, (*place, "secret"))
    for key in source.items:
        yield from key_of(team, source.secret or "", key, (*place, "items", key))


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
            yield Problem(
                (*path, index),
                f"has type {secret.type}, with which no image can be pulled",
                f"set teams.{path[1]}.secrets.{name}.type: {DOCKER_CONFIG}",
                name,
                about=(("teams", str(path[1]), "secrets"),),
            )


def _sources(tree: Tree, name: str, team: Team) -> Iterator[Problem]:
    if READER in team.service_accounts:
        rule = "is the ServiceAccount that reads the team's secrets in the cloud"
        yield Problem(("teams", name, "serviceAccounts", READER), rule, "rename it", READER)
    service = service_of(tree.stack.cluster)
    for key, secret in team.secrets.items():
        manager = store_of(secret.from_ or "")[0].manager if secret.from_ else service
        if service not in {"existing", manager}:
            yield Problem(
                ("teams", name, "secrets", key, "from"),
                f"is in another cloud than the cluster ({service}), whose identities have no rights there",
                f"use a secret of {service}, or set existing: true and create the Secret by hand",
                secret.from_,
                about=_ABOUT,
            )


def _budget(tree: Tree, name: str, team: Team) -> Iterator[Problem]:
    """The namespace's quota must have room for the Secrets that are made here or by External Secrets."""
    needed, budget = len(team.secrets), team.objects.secrets
    if budget is not None and needed > budget and not tree.stack.dispatches:
        rule = f"is less than the number of Secrets that the team declares ({needed})"
        yield Problem(
            ("teams", name, "objects", "secrets"), rule, f"raise it to {needed}", str(budget), (("teams", name),)
        )


def image_problems(tree: Tree) -> Iterator[Problem]:
    """Images of workloads from other registries, and registries of another cloud."""
    stack, allowed = tree.stack, tree.stack.images.allowed
    for name, team in stack.teams.items() if allowed else ():
        for path, workload in workloads(name, team):
            yield from _image((*path, "image"), workload.image, allowed)
            if isinstance(workload, Server) and workload.model and workload.model.image:
                yield from _image((*path, "model", "image"), workload.model.image, allowed)
            for role, spec in workload.roles.items() if isinstance(workload, Training) else ():
                if spec.image:
                    yield from _image((*path, "roles", role, "image"), spec.image, allowed)
        for index, image in enumerate(team.notebooks.images if team.notebooks else ()):
            yield from _image(("teams", name, "notebooks", "images", index), image, allowed)
    for index, registry in enumerate(stack.images.registries):
        cloud = "azure" if ACR.fullmatch(registry) else "gcp"
        if stack.cluster.cloud != cloud:
            yield Problem(
                ("images", "registries", index),
                f"has no effect: its readers are identities of {cloud}, which are not managed for this cluster",
                "remove it, and give the nodes the right to read the registry yourself",
                registry,
                about=(("cluster",),),
            )


def _image(path: Path, image: str, allowed: list[str]) -> Iterator[Problem]:
    # Only the engine knows an image that is secret or late.
    if image != UNREAD and ".invalid/" not in image and not is_allowed(image, allowed):
        fix = f"use an image of {' or '.join(allowed)}, or add its registry to images.allowed"
        yield Problem(path, "is not from an allowed registry", fix, image, about=(("images",),))
