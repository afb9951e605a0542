"""Secrets of teams, and how containers use Secrets and ConfigMaps: as variables, as files, and to pull images."""

import re
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, WithJsonSchema

from gpu_tenancy.model.fields import Matching, Name, Seconds, Section, Shorthand, refuse

DataKey: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[-._a-zA-Z0-9]{1,253}$")]
"""A key of a Secret or a ConfigMap: https://kubernetes.io/docs/concepts/configuration/secret/."""

PodField: TypeAlias = Literal[
    "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP",
    "status.podIP",
]  # fmt: skip
"""A field of the pod: https://kubernetes.io/docs/concepts/workloads/pods/downward-api/."""


class Variable(Section):
    """A text, or a reference: `{secret: NAME, key: KEY}`, `{configMap: NAME, key: KEY}` or `{field: metadata.name}`."""

    value: str | None = None
    """The text."""
    secret: Name | None = None
    """Secret of the team's namespace."""
    config_map: Name | None = None
    """ConfigMap of the team's namespace."""
    key: DataKey | None = None
    """Key of the Secret or ConfigMap."""
    field: PodField | None = None
    """Field of the pod."""

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        if sum(source is not None for source in [self.value, self.secret, self.config_map, self.field]) != 1:
            yield "does not have one source", "write a text, or set one of secret, configMap and field"
        if (self.key is None) == (self.secret is not None or self.config_map is not None):
            if self.key:
                yield "sets key without secret or configMap", "remove key"
            yield "names no key", "set key to the key whose value the variable gets"


def _text(value: Any) -> Any:
    """YAML reads `8080` and `true` without quotes as a number and a boolean."""
    if isinstance(value, bool | int | float):
        raise refuse("is not a string", "set a string, in quotes")
    return value


Variables: TypeAlias = dict[str, Annotated[Variable, Shorthand(str, ("value",)), BeforeValidator(_text)]]
"""Environment variables by name."""


class _Source(Section):
    secret: Name | None = None
    """Secret of the team's namespace."""
    config_map: Name | None = None
    """ConfigMap of the team's namespace."""

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        if (self.secret is None) == (self.config_map is None):
            yield "does not name one source", "set secret or configMap"


class EnvSource(_Source):
    """A Secret or ConfigMap of which each key becomes a variable."""

    prefix: str = ""
    """Start of the names of the variables."""


_RELATIVE: Final = re.compile(r"[-.\w]+(/[-.\w]+)*")


def _relative(text: str) -> str:
    if not _RELATIVE.fullmatch(text) or ".." in text.split("/"):
        fix = "use names of letters, digits, '-', '_' and '.', without '..'"
        raise refuse("is not a path below the directory", fix)
    return text


FilePath: TypeAlias = Annotated[
    str, AfterValidator(_relative), WithJsonSchema({"type": "string", "pattern": f"^{_RELATIVE.pattern}$"})
]
"""A path of a file below a directory."""


class FileSource(_Source):
    """A Secret or ConfigMap of which each key becomes a file in a directory."""

    items: dict[DataKey, FilePath] = {}
    """Path below the directory by key, such as `{tls.crt: client.pem}`; default: all keys, as files of these names."""


DOCKER_CONFIG: Final = "kubernetes.io/dockerconfigjson"
"""Type of the Secrets with credentials of registries."""
DOCKER_CONFIG_KEY: Final = ".dockerconfigjson"
"""Their only key: https://kubernetes.io/docs/tasks/configure-pod-container/pull-image-private-registry/."""

_MANAGED: Final = re.compile(
    r"aws://(?P<region>[a-z]{2}(-[a-z]+)+-\d)/(?P<aws>[\w/+=.@-]{1,512})"
    r"|gcp://(?P<project>[a-z][-a-z0-9]{4,28}[a-z0-9])/(?P<gcp>[A-Za-z0-9_-]{1,255})"
    r"|azure://(?P<group>[-\w.()]{1,90})/(?P<vault>[a-zA-Z][-a-zA-Z0-9]{1,22}[a-zA-Z0-9])/(?P<azure>[0-9a-zA-Z-]{1,127})"
)

SecretUrl: TypeAlias = Annotated[
    str,
    Matching(
        _MANAGED,
        "is not a secret of a cloud's secret manager",
        "use aws://REGION/NAME, gcp://PROJECT/NAME or azure://RESOURCE-GROUP/VAULT/NAME",
        schema="^(aws|gcp|azure)://[^/]+/.+$",
    ),
]
"""A secret of AWS Secrets Manager, Google Secret Manager or Azure Key Vault."""

ConfigName: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$")]
"""Name of a value in the Pulumi config, in the namespace `secrets`."""

CONFIG: Final = "secrets"
"""Namespace of the Pulumi config with values for Secrets: `pulumi config set --secret secrets:NAME`."""


def set_command(name: str) -> str:
    """The command that puts a value into the Pulumi config."""
    return f"pulumi config set --secret {CONFIG}:{name}"


class Secret(Section):
    """A Secret in the team's namespace, and where its values come from. A stack never has the values themselves."""

    existing: Literal[True] | None = None
    """`true`: somebody creates it by hand, such as with `kubectl create secret`."""
    from_: SecretUrl | None = Field(default=None, alias="from")
    """Secret of a cloud's secret manager, which External Secrets copies with the team's own identity:
    `aws://REGION/NAME`, `gcp://PROJECT/NAME` or `azure://RESOURCE-GROUP/VAULT/NAME`."""
    config: dict[DataKey, ConfigName] = {}
    """Values of the Pulumi config by key, such as `{TOKEN: wandb}` for `pulumi config set --secret secrets:wandb`. They
    are encrypted in the state, and reach the cluster by `pulumi up` only."""
    key: DataKey | None = None
    """With `from`: the key that gets the whole value."""
    keys: dict[DataKey, Annotated[str, StringConstraints(pattern=r"^[^\s]{1,256}$")]] = {}
    """With `from`: field of the value, which is a JSON object, by key. Default, without `key`: all of its fields."""
    refresh: Annotated[Seconds, Field(ge=60)] = 3600
    """With `from`: how often External Secrets reads the value again."""
    type: Literal["Opaque", "kubernetes.io/dockerconfigjson"] = "Opaque"
    """Type of the Secret. `kubernetes.io/dockerconfigjson`: credentials of registries, for `imagePullSecrets`."""

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        if sum((self.existing is not None, self.from_ is not None, bool(self.config))) != 1:
            yield "does not have one source", "set one of existing: true, from and config"
        for name in ("key", "keys", "refresh"):
            if name in self.model_fields_set and self.from_ is None:
                yield f"sets {name}, which only applies with from", f"remove {name}"
        if self.key is not None and self.keys:
            yield "sets key and keys", "keep key for the whole value, or keys for fields of it"
        if self.type == DOCKER_CONFIG and self.existing is None and self.known_keys != {DOCKER_CONFIG_KEY}:
            fix = f"key: {DOCKER_CONFIG_KEY}" if self.from_ else f"config: {{{DOCKER_CONFIG_KEY}: NAME}}"
            yield f"has type {DOCKER_CONFIG} without its only key {DOCKER_CONFIG_KEY}", f"set {fix}"

    @property
    def known_keys(self) -> set[str] | None:
        """Its keys; None if only somebody else knows them."""
        if self.config:
            return set(self.config)
        if self.key is not None:
            return {self.key}
        return set(self.keys) or None

    @property
    def source(self) -> str:
        """Where its values come from, for reports."""
        if self.from_:
            return self.from_
        return "Pulumi config" if self.config else "created by hand"
