"""Fields whose change forces Pulumi to replace a resource."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final, cast

from pydantic import TypeAdapter

from gpu_tenancy.base.json import Json
from gpu_tenancy.model.catalogue.rows import Fact, Row
from gpu_tenancy.model.yaml import read_table

_SELECTOR: Final = ("spec.selector",)

FORCES_NEW: Final[Mapping[str, tuple[str, ...]]] = {
    "apps:DaemonSet": _SELECTOR,
    "apps:Deployment": _SELECTOR,
    "apps:StatefulSet": (
        *_SELECTOR,
        "spec.podManagementPolicy",
        "spec.revisionHistoryLimit",
        "spec.serviceName",
        "spec.volumeClaimTemplates",
    ),
    "batch:Job": (*_SELECTOR, "spec.completions", "spec.parallelism", "spec.template"),
    "core:ConfigMap": ("binaryData", "data"),
    "core:PersistentVolume": (
        "spec.awsElasticBlockStore",
        "spec.azureDisk",
        "spec.csi",
        "spec.hostPath",
        "spec.local",
        "spec.nfs",
    ),
    "core:PersistentVolumeClaim": (*_SELECTOR, "spec.accessModes", "spec.storageClassName", "spec.volumeName"),
    "core:ResourceQuota": ("spec.scopes",),
    "core:Secret": ("data", "stringData", "type"),
    "core:Service": ("spec.clusterIP",),
    "rbac.authorization.k8s.io:ClusterRoleBinding": ("roleRef",),
    "rbac.authorization.k8s.io:RoleBinding": ("roleRef",),
    "storage.k8s.io:StorageClass": ("parameters", "provisioner"),
}
"""Fields, by API group and kind, whose change makes pulumi-kubernetes replace the object, besides its name.

Read on 2026-11-21: https://github.com/pulumi/pulumi-kubernetes/blob/master/provider/pkg/provider/diff.go
ConfigMaps and Secrets: not where the provider has `enableConfigMapMutable` and `enableSecretMutable`.
"""

NAMED_BY: Final = ("metadata.name", "metadata.namespace")


_MUTABLE: Final = {
    "kubernetes:core/v1:ConfigMap": "enableConfigMapMutable",
    "kubernetes:core/v1:Secret": "enableSecretMutable",
}


def forces_new(type_: str, path: str, declared: tuple[str, ...], provider: Mapping[str, Json]) -> bool:
    """Whether a change at this path forces replacement, as far as known without the cloud's provider.

    Args:
        type_: the resource's type token.
        path: `spec.template.spec.containers.0.image`.
        declared: `replaceOnChanges` of the resource, such as `spec.containers[0].image`.
        provider: inputs of its provider; some are strings that contain JSON.
    """
    mutable = provider.get(_MUTABLE.get(type_, "")) in {True, "true"}
    dotted = (re.sub(r"\[([0-9]+)\]", r".\1", field) for field in declared)
    fields = (*dotted, *(NAMED_BY if mutable else _of_kubernetes(type_)))
    return any(path == field or path.startswith(f"{field}.") or field == "*" for field in fields)


def _of_kubernetes(type_: str) -> tuple[str, ...]:
    if not type_.startswith("kubernetes:"):
        return ()
    _, version, kind = type_.split(":")
    return (*NAMED_BY, *FORCES_NEW.get(f"{version.partition('/')[0]}:{kind}", ()))


class CloudType(Row):
    """What the cloud's provider does with one type of resource.

    Attributes:
        what: in the words of a stack, such as `cluster`; empty for parts of which a review has no reason of their own.
        name: input with an explicit name: while it is the same, Pulumi deletes the old resource before it creates the
            new one.
        loses: what its deletion means, besides the end of nodes and workloads, as a clause.
        replaces: inputs whose change replaces the resource, without indexes; `.*` includes everything below.
        fixed: inputs that keep their first value in the cloud, with the reason.
    """

    what: str = ""
    name: str = ""
    loses: str = ""
    replaces: tuple[str, ...] = ()
    fixed: Mapping[str, str] = {}

    def forces(self, paths: Iterable[str]) -> bool:
        """Whether a change at one of these paths replaces the resource."""
        whole = tuple(field.removesuffix(".*") for field in self.replaces if field.endswith(".*"))
        return any(
            path in self.replaces or any(path == field or path.startswith(f"{field}.") for field in whole)
            for path in paths
        )


class _Table(Row):
    """The whole table, with its sources by provider."""

    sources: Mapping[str, Fact]
    types: Mapping[str, CloudType]


@cache
def cloud_types() -> Mapping[str, CloudType]:
    """Rows of `replacements.yaml` by type token."""
    return TypeAdapter(_Table).validate_python(read_table(Path(__file__).with_suffix(".yaml"))).types


_OTHER: Final = CloudType()


def cloud_type(type_: str) -> CloudType:
    """The row of a type; an empty one for types without."""
    return cloud_types().get(type_, _OTHER)


def without_indexes(path: Iterable[str | int]) -> str:
    """`agentPoolProfiles.vmSize` for `agentPoolProfiles.0.vmSize`."""
    return ".".join(step for step in map(str, path) if not step.isdigit())


def paths_in(path: str, *values: object) -> Iterator[str]:
    """A path without indexes, and those of all values inside: they appear or disappear with a block."""
    yield path
    for value in values:
        if isinstance(value, dict):
            for key, item in cast("dict[str, object]", value).items():
                yield from paths_in(f"{path}.{key}", item)
        elif isinstance(value, list):
            yield from (inner for item in cast("list[object]", value) for inner in paths_in(path, item))
