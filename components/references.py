"""Secrets and ConfigMaps in pods: variables, files and image pulls by reference, never by value."""

from typing import Final

from pulumi_kubernetes.core.v1 import (
    ConfigMapVolumeSourceArgsDict,
    EnvFromSourceArgsDict,
    EnvVarArgsDict,
    EnvVarSourceArgsDict,
    KeyToPathArgsDict,
    LocalObjectReferenceArgsDict,
    SecretVolumeSourceArgsDict,
    VolumeArgsDict,
    VolumeMountArgsDict,
)

from gpu_tenancy.model.plan.secrets import MountedFiles, References, VariableReference

_FILES: Final = "files-"
"""Prefix of the volumes; the names of Secrets are too long for volumes, and could be those of others."""


def variables(references: References) -> dict[str, EnvVarArgsDict]:
    """The variables of a container that refer to a key or a field, by name."""
    return {
        variable.name: {"name": variable.name, "value_from": _source(variable)} for variable in references.variables
    }


def _source(variable: VariableReference) -> EnvVarSourceArgsDict:
    if variable.kind == "secret":
        return {"secret_key_ref": {"name": variable.of, "key": variable.key}}
    if variable.kind == "configMap":
        return {"config_map_key_ref": {"name": variable.of, "key": variable.key}}
    return {"field_ref": {"field_path": variable.of}}


def variable_sources(references: References) -> list[EnvFromSourceArgsDict]:
    """The objects of which each key becomes a variable of a container, in the order of the stack: later ones win."""
    sources: list[EnvFromSourceArgsDict] = []
    for source in references.sources:
        entry: EnvFromSourceArgsDict = (
            {"secret_ref": {"name": source.name}}
            if source.kind == "secret"
            else {"config_map_ref": {"name": source.name}}
        )
        if source.prefix:
            entry["prefix"] = source.prefix
        sources.append(entry)
    return sources


def file_mounts(references: References) -> list[VolumeMountArgsDict]:
    """The mounts of a container for its files."""
    return [
        {"name": f"{_FILES}{index}", "mount_path": files.directory, "read_only": True}
        for index, files in enumerate(references.files)
    ]


def file_volumes(references: References) -> list[VolumeArgsDict]:
    """The volumes of a pod for its files."""
    return [_volume(f"{_FILES}{index}", files) for index, files in enumerate(references.files)]


def _volume(name: str, files: MountedFiles) -> VolumeArgsDict:
    items: list[KeyToPathArgsDict] = [{"key": key, "path": path} for key, path in files.items]
    if files.kind == "secret":
        secret: SecretVolumeSourceArgsDict = {"secret_name": files.name}
        if items:
            secret["items"] = items
        return {"name": name, "secret": secret}
    config_map: ConfigMapVolumeSourceArgsDict = {"name": files.name}
    if items:
        config_map["items"] = items
    return {"name": name, "config_map": config_map}


def pull_secrets(references: References) -> list[LocalObjectReferenceArgsDict]:
    """The Secrets with which a pod pulls its image; empty for those of its ServiceAccount."""
    return [{"name": name} for name in references.pull]
