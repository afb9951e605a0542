"""Programs that use components of this project, their objects, and the order of their resources."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import dedent
from typing import Any, Final, cast

from builders import Data

from gpu_tenancy.base.json import Json
from gpu_tenancy.engine.checks import problems
from gpu_tenancy.engine.objects import KubernetesObject, kubernetes_objects
from gpu_tenancy.engine.recording import NO_ANSWERS, Registration
from gpu_tenancy.engine.render import Rendered, render
from gpu_tenancy.model.source import Source, to_config

HEADER = """
import json
import pulumi
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan import plan
from gpu_tenancy.model.source import read_config

config = pulumi.Config("gpu-tenancy")
made = plan(load(read_config({"gpu-tenancy:" + key: config.get(key) for key in json.loads(config.require("keys"))})))
"""
TENANCY: Final = 'from components.tenancy import Tenancy\nTenancy("tenancy", made)'


@dataclass(frozen=True)
class Program:
    rendered: Rendered

    @property
    def objects(self) -> tuple[KubernetesObject, ...]:
        return kubernetes_objects(self.rendered)

    def only(self, kind: str, name: str = "", namespace: str = "") -> KubernetesObject:
        """The one object of a kind, and of a name if the kind is there more than once."""
        (registration,) = self.every(kind, name, namespace)
        return registration

    def every(self, kind: str, name: str = "", namespace: str = "") -> list[KubernetesObject]:
        return [
            resource
            for resource in self.objects
            if resource.kind == kind and name in {"", resource.name} and namespace in {"", resource.namespace}
        ]

    def spec(self, kind: str, name: str = "") -> Any:
        return cast("Any", self.only(kind, name).manifest)["spec"]

    def component(self, kind: str) -> Registration:
        (registration,) = (
            registration
            for registration in self.rendered.registrations
            if registration.type == f"gpu-tenancy:tenancy:{kind}"
        )
        return registration

    def children(self, kind: str) -> list[Registration]:
        return [
            registration
            for registration in self.rendered.registrations
            if registration.parent == self.component(kind).urn
        ]


def program(sections: Data, body: str, answers: Mapping[str, Mapping[str, Json]] = NO_ANSWERS) -> Program:
    """Renders a program with the plan of a stack as `made`; provider functions answer by token."""
    config = {**to_config(Source(sections)), "gpu-tenancy:keys": json.dumps(list(sections))}
    with TemporaryDirectory() as folder:
        (Path(folder) / "__main__.py").write_text(HEADER + dedent(body))
        rendered = render(Path(folder), project="other", stack="x", config=config, answers=answers)
    return Program(rendered)


def program_once(sections: Data, body: str, answers: Mapping[str, Mapping[str, Json]] = NO_ANSWERS) -> Program:
    """As `program`, but rendered once per process and shared: no test may change it."""
    return _once(json.dumps(sections), body, json.dumps(dict(answers)))


@lru_cache(maxsize=128)
def _once(sections: str, body: str, answers: str) -> Program:
    return program(json.loads(sections), body, json.loads(answers))


def cluster(sections: Data, answers: Mapping[str, Mapping[str, Json]] = NO_ANSWERS) -> Program:
    body = 'from components.clouds import open_cluster\nopen_cluster("cluster", made.cluster)'
    return program_once(sections, body, answers)


def platform(sections: Data) -> Program:
    return program_once(sections, "from components.platform import build\nbuild(made)")


def tenancy(sections: Data) -> Program:
    rendered = program_once(sections, TENANCY)
    assert problems(rendered.rendered) == ()
    return rendered


def texts(value: object, place: str = "") -> Iterator[tuple[str, str]]:
    """Every key and text of a manifest, with its place."""
    if isinstance(value, Mapping):
        for key, inner in cast("Mapping[str, object]", value).items():
            yield place, key
            yield from texts(inner, f"{place}.{key}")
    elif isinstance(value, list):
        for item in cast("list[object]", value):
            yield from texts(item, place)
    elif isinstance(value, str):
        yield place, value


def pod_specs(one: KubernetesObject) -> list[Any]:
    spec = cast("Any", one.manifest).get("spec", {})
    if one.kind == "TrainJob":
        return []
    if one.kind in {"JobSet", "TrainingRuntime"}:
        jobs = spec["replicatedJobs"] if one.kind == "JobSet" else spec["template"]["spec"]["replicatedJobs"]
        specs = [job["template"]["spec"]["template"]["spec"] for job in jobs]
        return [found for found in specs if "nodeSelector" in found]  # Of pytorch and jax, the TrainJob has the rest.
    if one.kind == "RayJob":
        ray = spec["rayClusterSpec"]
        return [group["template"]["spec"] for group in (ray["headGroupSpec"], *ray["workerGroupSpecs"])]
    if one.kind == "LeaderWorkerSet":
        templates = spec["leaderWorkerTemplate"]
        return [templates[key]["spec"] for key in ("leaderTemplate", "workerTemplate") if key in templates]
    templates = [task["template"] for task in spec["tasks"]] if "tasks" in spec else [spec.get("template")]
    return [template["spec"] for template in templates if template]


# Which resources wait for which, by the rules of Pulumi's engine, for tests of order


class Graph:
    """The resources of a stack; a dependency on a component is one on all resources below it."""

    def __init__(self, rendered: Rendered) -> None:
        self.known = {registration.urn: registration for registration in rendered.registrations}

    def needs(self, one: Registration) -> set[str]:
        """Direct dependencies of a resource: references, its provider, and its parent's URN."""
        named = {*one.dependencies, one.provider.rpartition("::")[0], one.parent} & self.known.keys()
        return {urn for item in named for urn in (item, *(self._below(item) if item != one.parent else ()))} - {one.urn}

    def _below(self, urn: str) -> Iterable[str]:
        for child in self._children.get(urn, ()):
            yield child
            yield from self._below(child)

    @cached_property
    def _children(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for registration in self.known.values():
            found.setdefault(registration.parent, []).append(registration.urn)
        return found

    def all_needs(self, one: Registration) -> set[str]:
        found: set[str] = set()
        left = [one.urn]
        while left:
            for urn in self.needs(self.known[left.pop()]) - found:
                found.add(urn)
                left.append(urn)
        return found

    def order(self) -> list[str]:
        """The resources in an order of creation; destruction is its reverse. Fails if there is a cycle."""
        left: dict[str, set[str]] = {urn: self.needs(value) for urn, value in self.known.items()}
        made: list[str] = []
        while left:
            there = set(made)
            ready = sorted(urn for urn, needs in left.items() if needs <= there)
            assert ready, f"these wait for each other: {sorted(left)}"
            made += ready
            left = {urn: needs for urn, needs in left.items() if urn not in ready}
        return made

    def find(self, type_: str, name: str = "") -> list[Registration]:
        return [
            registration
            for registration in self.known.values()
            if registration.type == type_ and name in {"", name_of(registration)}
        ]


def name_of(one: Registration) -> str:
    """A resource's name in the cluster: a release's own, an object's in its metadata."""
    metadata = one.inputs.get("metadata")
    return str(metadata.get("name", "") if isinstance(metadata, dict) else one.inputs.get("name", ""))
