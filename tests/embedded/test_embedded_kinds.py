"""The paths of kinds in `model/kinds.yaml` are fields of the pinned custom resource definitions."""

from collections.abc import Iterator, Mapping
from typing import Any

import platformdirs
import pytest

from gpu_tenancy.base.progress import Report
from gpu_tenancy.embedded.definitions import fetch
from gpu_tenancy.embedded.definitions.pins import read_pins
from gpu_tenancy.model.kinds import Step, WorkloadKind, kinds
from gpu_tenancy.model.yaml import read_table

OF_FORM = {"[]": "items", "{}": "additionalProperties"}


@pytest.mark.process
@pytest.mark.slow
def test_each_path_of_a_kind_is_a_field_of_its_definition(report: Report) -> None:
    groups = {kind.group for kind in kinds().values()}
    pins = [pin for pin in read_pins() if pin.file.partition("_")[0] in groups]
    files = fetch(pins, platformdirs.user_cache_path("gpu-tenancy"), report).values()
    compared: set[str] = set()
    problems: list[str] = []
    for definition in map(read_table, files):
        spec = definition["spec"]
        kind = kinds().get((spec["group"], spec["names"]["kind"]))
        if kind is None:
            continue
        compared.add(kind.kind)
        versions = {version["name"]: version["schema"]["openAPIV3Schema"] for version in spec["versions"]}
        problems += [f"{kind.kind}: {kind.version}"] if kind.version and kind.version not in versions else []
        problems += [f"{kind.kind}: {kind.plural}"] if kind.plural != spec["names"]["plural"] else []
        schema = versions.get(kind.version) or next(iter(versions.values()))
        problems += [f"{kind.kind}: {path}" for path in paths(kind) if not has(schema, path)]
    assert problems == []
    assert {"JobSet", "LeaderWorkerSet", "RayCluster", "RayJob", "RayService", "TrainJob"} <= compared


def paths(kind: WorkloadKind) -> Iterator[str]:
    """All paths of a kind, except those that an older version of its API has."""
    steps = [*(pods.path for pods in kind.pods), kind.gang, kind.deadline, kind.named, *kind.patches[:1]]
    yield from (text(path) for path in steps if path)
    for pods in kind.pods:
        fields = (*pods.count, *filter(None, (pods.resources, pods.less)))
        yield from (f"{text(pods.at)}.{field}" for field in fields)
    if kind.groups:
        yield kind.groups.count
    if kind.ready:
        yield f"status.{kind.ready}"


def text(path: tuple[Step, ...]) -> str:
    return ".".join(f"{step.field}.{OF_FORM[step.form]}" if step.form in OF_FORM else step.field for step in path)


def has(schema: Mapping[str, Any], path: str) -> bool:
    """Whether a schema has a path, of which the definition can leave the last part open."""
    for field in path.split("."):
        if schema.get("x-kubernetes-preserve-unknown-fields"):
            return True
        below = schema if field in OF_FORM.values() else schema.get("properties", {})
        if field not in below:
            return False
        schema = below[field]
    return True
