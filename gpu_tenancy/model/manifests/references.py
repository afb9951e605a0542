"""Secrets and ConfigMaps in pods: variables, files and image pulls by reference, never by value."""

from typing import Any, Final

from gpu_tenancy.model.plan.secrets import MountedFiles, References, VariableReference

_FILES: Final = "files-"
"""Prefix of the volumes; the names of Secrets are too long for volumes, and could be those of others."""


def variables(references: References) -> dict[str, dict[str, Any]]:
    """The variables of a container that refer to a key or a field, by name."""
    return {variable.name: {"name": variable.name, "valueFrom": _source(variable)} for variable in references.variables}


def _source(variable: VariableReference) -> dict[str, Any]:
    if variable.kind == "field":
        return {"fieldRef": {"fieldPath": variable.of}}
    return {f"{variable.kind}KeyRef": {"name": variable.of, "key": variable.key}}


def variable_sources(references: References) -> list[dict[str, Any]]:
    """The objects of which each key becomes a variable of a container, in the order of the stack: later ones win."""
    return [
        {f"{source.kind}Ref": {"name": source.name}, **({"prefix": source.prefix} if source.prefix else {})}
        for source in references.sources
    ]


def file_mounts(references: References) -> list[dict[str, Any]]:
    """The mounts of a container for its files."""
    return [
        {"name": f"{_FILES}{index}", "mountPath": files.directory, "readOnly": True}
        for index, files in enumerate(references.files)
    ]


def file_volumes(references: References) -> list[dict[str, Any]]:
    """The volumes of a pod for its files."""
    return [{"name": f"{_FILES}{index}", files.kind: _files(files)} for index, files in enumerate(references.files)]


def _files(files: MountedFiles) -> dict[str, Any]:
    named = "secretName" if files.kind == "secret" else "name"
    items = [{"key": key, "path": path} for key, path in files.items]
    return {named: files.name, **({"items": items} if items else {})}


def pull_secrets(references: References) -> list[dict[str, str]]:
    """The Secrets with which a pod pulls its image; empty for those of its ServiceAccount."""
    return [{"name": name} for name in references.pull]
