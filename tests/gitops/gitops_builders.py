"""Trees of stacks, as in a user's repository."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import yaml
from rendered_stacks import stack_of_repository

from gpu_tenancy.engine.recording import Registration
from gpu_tenancy.engine.render import Rendered
from gpu_tenancy.gitops.manifests import Piece, pieces, plain
from gpu_tenancy.model.project import stack_names

STACKS = stack_names()
WITH_RELEASES = "dev-aws"


@cache
def rendered(stack: str) -> Rendered:
    return stack_of_repository(stack).rendered


@cache
def parts(stack: str) -> tuple[Piece, ...]:
    return pieces(rendered(stack))


@cache
def tree(stack: str) -> dict[PurePosixPath, str]:
    return plain(parts(stack))


def documents(files: Mapping[PurePosixPath, str], file: str) -> list[Any]:
    """The content of a file, by libyaml: trees have thousands of lines, and Python's own parser is ten times slower."""
    return list(yaml.load_all(files[PurePosixPath(file)], Loader=yaml.CSafeLoader))


def built(files: Mapping[PurePosixPath, str], folder: str) -> list[Any]:
    """The objects of a folder, by its kustomization, as kustomize would read it."""
    (listed,) = documents(files, f"{folder}/kustomization.yaml")
    assert listed.keys() == {"apiVersion", "kind", "resources"}
    there = {path.name for path in files if path.parent == PurePosixPath(folder) and not path.name.startswith("helm-")}
    assert there == {*listed["resources"], "kustomization.yaml"}
    return [one for file in listed["resources"] for one in documents(files, f"{folder}/{file}")]


def folders(files: Mapping[PurePosixPath, str]) -> list[str]:
    """The waves that have objects, in their order."""
    return sorted(
        path.parent.as_posix() for path in files if path.name == "kustomization.yaml" and len(path.parts) == 3
    )


def everything(files: Mapping[PurePosixPath, str]) -> list[Any]:
    return [one for folder in folders(files) for one in built(files, folder)]


def key(one: Any) -> tuple[str, str, str, str]:
    """The identity of an object for an API server, without the version of its kind."""
    metadata = one["metadata"]
    return one["apiVersion"].rpartition("/")[0], one["kind"], metadata.get("namespace", ""), metadata["name"]


def key_of(one: Piece) -> tuple[str, str, str, str]:
    return one.group, one.kind, one.namespace, one.name


def changed(found: Rendered, name: str, **fields: Any) -> Rendered:
    """A rendered stack with one resource changed."""
    known = {one.name for one in found.registrations}
    assert name in known, sorted(known)

    def edited(one: Registration) -> Registration:
        return replace(one, **fields) if one.name == name else one

    return replace(found, registrations=tuple(map(edited, found.registrations)))


def written(files: Mapping[PurePosixPath, str], folder: Path) -> None:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
