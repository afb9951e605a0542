"""Secrets of teams, and their use by workloads: never their values."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from gpu_tenancy.base.grouping import grouped
from gpu_tenancy.model.resolve import ResolvedServer, ResolvedStack, ResolvedTeam
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.clouds.base import CloudCluster
from gpu_tenancy.model.spec.cluster import Cluster
from gpu_tenancy.model.spec.secrets import EnvSource, FileSource, Secret, Variable
from gpu_tenancy.model.spec.teams import Team
from gpu_tenancy.model.spec.workloads import Workload

READER: Final = "secret-reader"
"""ServiceAccount of a team as which External Secrets reads the team's secrets in the cloud. No pod runs with it."""


@dataclass(frozen=True, slots=True)
class References:
    """Secrets and ConfigMaps that a pod uses."""

    variables: Mapping[str, Variable] = field(default_factory=dict[str, Variable])  # keys' values, pod fields, by name
    sources: tuple[EnvSource, ...] = ()  # of the container's other variables
    files: Mapping[str, FileSource] = field(default_factory=dict[str, FileSource])  # read-only mounts, by directory
    pull: tuple[str, ...] = ()  # Secrets with which the pod pulls its image; empty for its ServiceAccount's
    from_config: tuple[tuple[str, tuple[str, ...]], ...] = ()  # Secrets made from the Pulumi config, by its names


NO_REFERENCES: Final = References()


def references(team: Team, workload: Workload) -> References:
    """Secrets and ConfigMaps that the pods of a workload use."""
    names = secrets_of(workload)
    pull = (*team.image_pull_secrets, *workload.image_pull_secrets) if workload.image_pull_secrets else ()
    return References(
        variables={name: variable for name, variable in workload.env.items() if variable.value is None},
        sources=tuple(workload.env_from),
        files=dict(sorted(workload.files.items())),
        pull=tuple(dict.fromkeys(pull)),
        from_config=tuple(
            (name, tuple(sorted(secret.config.values())))
            for name, secret in sorted(team.secrets.items())
            if secret.config and name in names
        ),
    )


def literals(env: Mapping[str, Variable]) -> dict[str, str]:
    """The variables that are texts."""
    return {name: variable.value for name, variable in env.items() if variable.value is not None}


def secrets_of(workload: Workload) -> set[str]:
    """Names of the Secrets that the container of a workload reads."""
    used = [variable.secret for variable in workload.env.values()]
    used += [source.secret for source in (*workload.env_from, *workload.files.values())]
    if isinstance(workload, ResolvedServer) and workload.exposure and (key := workload.exposure.api_key):
        used.append(key.secret)
    return {name for name in used if name}


@dataclass(frozen=True, slots=True)
class Store:
    """A secret manager in one region (AWS), project (GCP) or vault (Azure), as a SecretStore of a team."""

    manager: Literal["aws", "gcp", "azure"]
    place: str
    group: str = ""  # resource group of the vault on Azure; else empty

    @property
    def name(self) -> str:
        """Name of the SecretStore."""
        return f"{self.manager}-{self.place.lower()}"


@dataclass(frozen=True, slots=True)
class CopiedSecret:
    """A Secret, and its ExternalSecret, that External Secrets copies from a secret manager every `refresh` seconds."""

    name: str
    store: Store
    remote: str  # its name in the store
    keys: tuple[tuple[str, str], ...]  # field of its value by key ("" for the whole value); empty for all
    refresh: int
    type: str


@dataclass(frozen=True, slots=True)
class SecretReader:
    """The cloud identity of a team that may read exactly its own secrets."""

    team: str  # its namespace; its ServiceAccount there is `READER`
    secrets: tuple[tuple[Store, tuple[str, ...]], ...]  # names by store, sorted
    annotations: Mapping[str, str]  # of its ServiceAccount, with its identity; names that the cloud decides are late
    cluster: Mapping[str, str]  # Google Cloud's data of the ServiceAccount's cluster


@dataclass(frozen=True, slots=True)
class TeamSecrets:
    """The Secrets of a team's namespace that this program makes, or External Secrets copies; never others."""

    of_config: Mapping[str, Secret]  # by name
    copied: tuple[CopiedSecret, ...] = ()
    reader: SecretReader | None = None  # None without copies

    @property
    def stores(self) -> tuple[Store, ...]:
        """Where the copies come from, each once."""
        return tuple(dict.fromkeys(secret.store for secret in self.copied))


NO_SECRETS: Final = TeamSecrets({})


def team_secrets(stack: Stack, name: str) -> TeamSecrets:
    """The Secrets of a team; none for a MultiKueue manager, which runs no pods."""
    cluster, secrets = stack.cluster, dict(sorted(stack.teams[name].secrets.items()))
    if stack.dispatches:
        return NO_SECRETS
    of_config = {key: secret for key, secret in secrets.items() if secret.config}
    copied = tuple(_copied(key, secret, secret.from_) for key, secret in secrets.items() if secret.from_)
    if not copied:
        return TeamSecrets(of_config)
    stores: dict[Store, set[str]] = {}
    for secret in copied:
        stores.setdefault(secret.store, set()).add(secret.remote)
    read = tuple((store, tuple(sorted(names))) for store, names in stores.items())
    reader = SecretReader(name, read, cluster.reader_annotations(name), cluster.reader_cluster)
    return TeamSecrets(of_config, copied, reader)


def _copied(name: str, secret: Secret, url: str) -> CopiedSecret:
    store, remote = store_of(url)
    keys = ((secret.key, ""),) if secret.key else tuple(sorted(secret.keys.items()))
    return CopiedSecret(name, store, remote, keys, secret.refresh, secret.type)


def readers(stack: Stack) -> tuple[SecretReader, ...]:
    """The identities of all teams that read secrets in a cloud."""
    return tuple(reader for name in stack.teams if (reader := team_secrets(stack, name).reader))


def config_names(stack: Stack) -> dict[str, tuple[str, ...]]:
    """The values of the Pulumi config that a stack needs, each with the first place of the stack that names it."""
    found: dict[str, tuple[str, ...]] = {}
    for team, spec in stack.teams.items() if not stack.dispatches else ():
        for name, secret in spec.secrets.items():
            for key, value in secret.config.items():
                found.setdefault(value, ("teams", team, "secrets", name, "config", key))
    return found


def store_of(url: str) -> tuple[Store, str]:
    """The store of a secret's URL, and the secret's name there."""
    manager, _, rest = url.partition("://")
    place, _, remote = rest.partition("/")
    if manager == "azure":
        vault, _, name = remote.partition("/")
        return Store("azure", vault, place), name
    return Store("aws" if manager == "aws" else "gcp", place), remote


UNDECLARED: Final = "not declared"  # source of a Secret that a workload uses, and its team does not declare


@dataclass(frozen=True, slots=True)
class SecretRow:
    """A Secret of a team, as reports list it: never its values."""

    team: str
    name: str
    source: str  # source of its values, or `UNDECLARED`
    users: tuple[str, ...]  # workloads that read it, and `image pulls` for registries
    restarts: bool  # whether pods of servers restart when the value changes
    right: str  # the right to read it in the cloud, and its grantor; empty for other sources

    @property
    def reach(self) -> str:
        """The effect of a changed value."""
        return "servers restart" if self.restarts else "pods keep the old value until they restart"


def _right(cluster: Cluster, team: str, secret: Secret | None) -> str:
    """The right of the team's identity to read a secret: made here, or a task of the cluster's owner."""
    if secret is None or secret.from_ is None:
        return ""
    account = f"ServiceAccount {team}/{READER}"
    if isinstance(cluster, CloudCluster):
        return f"{account}, whose right is made here"
    store, remote = store_of(secret.from_)
    asked = {
        "aws": f"an IAM role with secretsmanager:GetSecretValue on {remote}, in annotation eks.amazonaws.com/role-arn",
        "gcp": f"roles/secretmanager.secretAccessor on {remote}",
        "azure": f"Key Vault Secrets User on {remote}, in annotation azure.workload.identity/client-id",
    }
    return f"{account} needs {asked[store.manager]}, from the owner of the cluster"


def secret_rows(stack: ResolvedStack) -> Iterator[SecretRow]:
    """All Secrets that teams declare or use."""
    for name, team in stack.teams.items():
        users = _users(team)
        for secret in sorted({*users, *team.secrets}):
            declared = team.secrets.get(secret)
            source, by = declared.source if declared else UNDECLARED, tuple(users.get(secret, ()))
            restarts, right = bool(declared and declared.config), _right(stack.cluster, name, declared)
            yield SecretRow(name, secret, source, by, restarts, right)


def _users(team: ResolvedTeam) -> dict[str, list[str]]:
    uses = [(secret, "image pulls of all pods") for secret in team.image_pull_secrets]
    for name, workload in {**team.serving, **team.training}.items():
        uses += [
            (used, name) for used in sorted({used for part in workload.parts.values() for used in secrets_of(part)})
        ]
        uses += [(secret, f"image pulls of {name}") for secret in workload.image_pull_secrets]
    return grouped(uses)
