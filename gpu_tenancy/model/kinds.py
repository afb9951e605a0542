"""Kinds that contain pods, and their counting by Kueue and Volcano, from `kinds.yaml`.

A malformed table raises `pydantic.ValidationError`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict

from gpu_tenancy.base.json import Json, at, int_at, text_at
from gpu_tenancy.model.yaml import read_table

TABLE: Final = Path(__file__).with_name("kinds.yaml")

Queued: TypeAlias = Literal["object", "jobs", "either", "templates", "never"]
"""Place of the queue label. `object`: on the object. `jobs`: on the Jobs of a CronJob. `either`: on the object or on
its pod template. `templates`: on the pods, which are queued one by one. `never`: its pods cannot be queued."""
Form: TypeAlias = Literal["", "?", "[]", "{}"]

_ALONE: Final = "main"  # Kueue's name of an object's pods if they are all alike
_STEP: Final = re.compile(r"(\w+)(\?|\[\]|\{\})?")


@dataclass(frozen=True, slots=True)
class Step:
    """A field of a path; form `?`: it can be missing, `[]`: each item of a list, `{}`: each entry of a map."""

    field: str
    form: Form


def _steps(path: object) -> object:
    if not isinstance(path, str):
        return path
    found = [_STEP.fullmatch(step) for step in path.split(".")] if path else []
    if not all(found):
        raise ValueError(f"{path!r} is not a path")
    return tuple(Step(match[1], cast("Form", match[2] or "")) for match in found if match)


Steps: TypeAlias = Annotated[tuple[Step, ...], BeforeValidator(_steps)]


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Pods(_Row):
    """Pods that are alike; the fields are explained in `kinds.yaml`."""

    at: Steps = ()
    template: Steps = ()
    resources: str = ""
    name: str = ""
    count: dict[str, int] = {}
    sizes: tuple[str, ...] = ()
    less: str = ""
    roles: tuple[str, ...] = ()
    adds: Literal["", "ray"] = ""

    @property
    def path(self) -> tuple[Step, ...]:
        """Path of the templates from the object."""
        return (*self.at, *self.template)

    def of(self, manifest: Mapping[str, Json]) -> "Iterator[PodSet]":
        """The pods of an object, as Kueue counts them."""
        for key, item in values_at(manifest, self.at, self.roles):
            is_item = bool(self.at) and self.at[-1].form == "[]"
            name = text_at(item, self.name) if is_item else key.lower() or self.name
            count = prod(_number(item, field, default) for field, default in self.count.items())
            if self.less:
                name, count = (name, count - 1) if at(item, self.less) else (_ALONE, count)
            stated = any(isinstance(at(item, *field.split(".")), int) for field in self.count)
            for _, template in values_at(item, self.template):
                yield PodSet(name, count, template, stated=stated)


@dataclass(frozen=True, slots=True)
class PodSet:
    """Pods of an object that are alike."""

    name: str
    count: int
    template: Mapping[str, Json]  # the parent of `resources` for a kind whose `Pods` have them
    stated: bool  # whether the object has the number; a Deployment with an autoscaler does not


class Groups(_Row):
    """Groups of pods that Kueue admits one by one."""

    count: str
    index: str


class Secrets(_Row):
    """Names of Secrets in a part of an object; the fields are explained in `kinds.yaml`."""

    at: Steps
    names: tuple[Steps, ...]


class WorkloadKind(_Row):
    """A kind with pods; the fields are explained in `kinds.yaml`."""

    group: str
    kind: str
    plural: str
    version: str = ""
    work: Literal["batch", "serving"] | None = None
    guarded: bool = True
    made: bool = False
    operator: str | None = None
    pods: tuple[Pods, ...] = ()
    patches: tuple[Steps, ...] = ()
    has_children: bool = False
    secrets: tuple[Secrets, ...] = ()
    groups: Groups | None = None
    suspend: Steps = ()
    gang: Steps = ()
    deadline: Steps = ()
    integration: str = ""
    queue: Queued = "object"
    without: Queued | None = None
    counted_by: Literal["template", "pods"] | None = None
    revised: bool = False
    label: str = ""
    named: tuple[Steps, ...] = ()
    ready: str = ""

    @property
    def api(self) -> tuple[str, str]:
        """API version, with its group, and kind."""
        return f"{self.group}/{self.version}" if self.group else self.version, self.kind

    @property
    def counts_template(self) -> bool:
        """Whether Kueue counts the pod template, and not the pods, which have defaults."""
        return bool(self.integration) if self.counted_by is None else self.counted_by == "template"

    @property
    def is_queued(self) -> bool:
        """Whether `fit` and `why` know its queue: Kueue has an integration of it, or Volcano schedules it."""
        return bool(self.version and (self.integration or self.gang))

    @property
    def is_job(self) -> bool:
        """Whether its pods are not replicas of a server: batch work, single pods and Ray clusters."""
        return self.work == "batch" or (self.work is None and bool(self.integration))

    @property
    def resource(self) -> str:
        """Its resource with the API group, as in a ResourceQuota: `jobs.batch`."""
        return f"{self.plural}.{self.group}".rstrip(".")

    def pod_sets(self, manifest: Mapping[str, Json]) -> Iterator[PodSet]:
        """The pods of an object, as Kueue counts them; for a kind with groups, the pods of one group."""
        for pods in self.pods:
            yield from pods.of(manifest)


@cache
def kinds() -> Mapping[tuple[str, str], WorkloadKind]:
    """All kinds by API group and kind."""
    return {
        (group, kind): WorkloadKind(group=group, kind=kind, **row)
        for name, row in read_table(TABLE).items()
        for kind, _, group in (name.partition("."),)
    }


def servers() -> tuple[str, ...]:
    """Names of the kinds whose pods are replicas of a server, and of those that controllers make of them."""
    return tuple(sorted({row.kind for row in kinds().values() if not row.is_job}))


def kind_of(manifest: Mapping[str, Json]) -> WorkloadKind | None:
    """The kind of an object; None if the kind contains no pods."""
    return kinds().get((text_at(manifest, "apiVersion").rpartition("/")[0], text_at(manifest, "kind")))


def kind_at(api: tuple[str, str]) -> WorkloadKind:
    """A kind by its API version and name. Raises KeyError if the kind is not in the table."""
    return kinds()[api[0].rpartition("/")[0], api[1]]


def values_at(
    item: Mapping[str, Json], steps: tuple[Step, ...], roles: tuple[str, ...] = ()
) -> Iterator[tuple[str, Mapping[str, Json]]]:
    """The objects at a path from an item, each with its key in a map. Missing fields are empty objects.

    `roles` are the keys of maps to read, in this order; empty for all.
    """
    reached: list[tuple[str, Json | Mapping[str, Json]]] = [("", item)]
    for step in steps:
        found = ((key, at(value, step.field)) for key, value in reached if isinstance(value, Mapping))
        if step.form == "[]":
            reached = [(key, one) for key, value in found if isinstance(value, list) for one in value]
        elif step.form == "{}":
            maps = [value for _, value in found if isinstance(value, dict)]
            reached = [(key, entries[key]) for entries in maps for key in roles or entries if key in entries]
        else:
            reached = [(key, {} if value is None and not step.form else value) for key, value in found]
    yield from ((key, value) for key, value in reached if isinstance(value, Mapping))


def _number(item: Mapping[str, Json], field: str, default: int) -> int:
    """A Job runs at most as many pods at once as its completions."""
    *path, last = field.split(".")
    number = int_at(item, *path, last, otherwise=default)
    return min(number, int_at(item, *path, "completions", otherwise=number)) if last == "parallelism" else number
