"""The operators, each in a file `FIELD.yaml` of this folder, by its field in `Operators`.

A file's first document describes the operator (`Description`). The second has the accepted values of its charts and
their subcharts, and is read only for a stack that sets values.
The first read of a malformed description raises `pydantic.ValidationError`.
"""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias, cast

from pydantic import Field

from gpu_tenancy.base.problems import listed
from gpu_tenancy.model.catalogue.releases import Chart, Version
from gpu_tenancy.model.catalogue.rows import Fact, Row
from gpu_tenancy.model.fields import Bytes, Cpu
from gpu_tenancy.model.yaml import parse_all

FOLDER: Final = Path(__file__).parent


class Probe(Row):
    """An object (`manifest`) whose dry run succeeds when the webhooks of an operator are ready.

    An operator has none if it has no webhooks, if they have `failurePolicy: Ignore`, or if they validate no object of
    this project. Intel's webhooks fail closed and have no probe yet. `resource` is the plural of the kind.
    """

    resource: str
    manifest: Mapping[str, Any]

    @property
    def group(self) -> str:
        """API group of its kind."""
        return str(self.manifest["apiVersion"]).partition("/")[0]


CRITICAL: Final = ("system-node-critical", "system-cluster-critical")
"""Kubernetes' own priority classes: https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/"""


class Requests(Row):
    """CPU in millicores, and memory in bytes."""

    cpu: Cpu = 0
    memory: Bytes = 0


class Advisory(Fact):
    """A published defect of an operator: its identifier, and the versions from `since` to before `fixed`."""

    id: str
    since: Version = "0.0.0"
    fixed: Version
    effect: str  # what a tenant can do, or what goes wrong


class OperatorChart(Chart):
    """A chart of an operator.

    `definitions`: CRDs survive an uninstall by Helm, because they are in the chart's `crds` folder (`helm`); by a value
    that this program sets (`value`); or not, because they are templates (`nobody`).
    """

    namespace: Annotated[str, Field(min_length=1)]
    daemons: Literal["gpus", "every"] | None = None  # nodes of its DaemonSets: with its GPUs, or all
    privileged: bool = False  # whether its pods need privileged access to the node, for devices, drivers or metrics
    priority_classes: tuple[str, ...] = ()  # of its pods, hooks, and pods that its controller creates
    requests: Requests = Requests()  # of one replica of each of its Deployments, which run on nodes without GPUs
    definitions: Literal["helm", "value", "nobody"] = "helm"
    serves: tuple[str, ...] = ()  # API groups, whose objects depend on its webhooks and are deleted before it
    values: Mapping[str, Any] = {}  # `{FIELD}`: whether that operator runs; the rest: `model.plan.operators.values`
    probe: Probe | None = None  # None without relevant webhooks
    advisories: tuple[Advisory, ...] = ()

    def notes(self, release: str, version: str) -> Iterator[str]:
        """What is known about a version of this chart: that it is not the tested one, and its advisories."""
        if version != self.version:
            yield f"{release} {version} was not tested with this version of GPU tenancy ({self.version} was)"
        for advisory in self.advisories:
            if _numbers(advisory.since) <= _numbers(version) < _numbers(advisory.fixed):
                yield f"{release} {version}: {advisory.effect} ({advisory.id}); fixed in {advisory.fixed}"


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)[:3]]


class Description(Row):
    """One operator.

    `charts`: by release, in the order of installation. The stack's values apply to the last one.
    """

    title: str
    description: str  # of its key in the stack, in Markdown
    example: Any  # of its key
    installed_if: str  # condition of the default installation, in Markdown
    needed: str  # condition of `model.plan.needs` under which a stack needs it
    required: str | None = None  # condition under which a stack does not work without it; default: `needed`
    gpus: str = ""  # domain of the GPU resources that it advertises, with a slash
    after: str | None = None  # field of the operator that is installed before it
    requires: Mapping[str, str] = {}  # reasons why it needs other operators if it is installed, by their fields
    charts: Annotated[Mapping[str, OperatorChart], Field(min_length=1)]
    definitions: tuple[Mapping[str, Any], ...] = ()  # its CustomResourceDefinitions, for `embedded.definitions.pins`
    controllers: Mapping[str, Any] = {}  # its programs on the embedded platform, for `embedded.controllers.table`

    @property
    def release(self) -> str:
        """The release to which the stack's version, digest and values apply."""
        return tuple(self.charts)[-1]


@cache
def operators() -> Mapping[str, Description]:
    """The operators by field, in the order of installation."""
    rows = {file.stem: Description.model_validate(next(parse_all(file.read_bytes()))) for file in FOLDER.glob("*.yaml")}

    def place(name: str) -> tuple[int, str]:
        before = rows[name].after
        return (place(before)[0] + 1 if before else 0, name)

    return {name: rows[name] for name in sorted(rows, key=place)}


@cache
def charts() -> Mapping[str, OperatorChart]:
    """The charts of all operators by release, in the order of installation."""
    return {name: chart for operator in operators().values() for name, chart in operator.charts.items()}


Keys: TypeAlias = tuple[str, ...]  # path of a key in a chart's values

FREE: Final = "*"  # suffix of a key in the table: any keys are allowed below it
_Sections: TypeAlias = dict[Keys, dict[str, bool]]  # keys of each section, and whether any keys are allowed below them


class ChartValues(Fact):
    """The values that one chart supports; the source is its `values.yaml`. Helm ignores unknown values silently.

    `tests/originals.py` generates and compares a row. If a stack sets another version of a chart, the keys of this
    version apply.
    """

    version: str | None = None  # also of the subcharts; None if `tests/originals.py` does not compare the row
    sha256: str | None = None  # of the file, in hexadecimal; None like `version`
    contains: tuple[str, ...] = ()  # rows of its subcharts in this or another file; each has the section of its name
    keys: Mapping[str, str]  # by dotted path (`.`: top level), separated by spaces; any key below `key*`
    also: Mapping[str, str] = {}  # keys of its schema or templates, absent from `values.yaml` or only in comments

    def unknown(self, values: Mapping[str, Any]) -> Iterator[tuple[Keys, str]]:
        """Paths of unknown keys, each with a fix, such as the nearest key."""
        if values:
            sections: _Sections = {}
            self._gather(sections, ())
            yield from _unknown(sections, values, ())

    def _gather(self, sections: _Sections, place: Keys) -> None:
        for path, keys in (*self.keys.items(), *self.also.items()):
            section = sections.setdefault((*place, *(() if path == "." else path.split("."))), {})
            for key in keys.split():
                name = key.removesuffix(FREE)
                section[name] = section.get(name, False) or key.endswith(FREE)
        for name in self.contains:
            contained_values()[name]._gather(sections, (*place, name))


def _unknown(sections: _Sections, values: Mapping[str, Any], place: Keys) -> Iterator[tuple[Keys, str]]:
    known, depth = sections.get(place, {}), len(place)
    below = {path[depth] for path in sections if len(path) > depth and path[:depth] == place}
    for key, value in values.items():
        here = (*place, key)
        if known.get(key):
            continue
        if isinstance(value, Mapping) and key in below:
            yield from _unknown(sections, cast("Mapping[str, Any]", value), here)
        elif key in known:
            if isinstance(value, Mapping) and value:
                yield here, "set one value: the chart has no keys below it"
        elif key not in below:
            names = sorted({*known, *below})
            hint = f"use one of: {listed(key, names)}" if names else "remove it"
            near = get_close_matches(key, names, n=1)
            yield here, f"did you mean '{near[0]}'?" if near else hint
        elif value is not None:  # In Helm, null removes a section.
            yield here, "set keys below it: it is a section of the chart's values"


def chart_values() -> Mapping[str, ChartValues]:
    """The supported values of each chart, by release; raises `pydantic.ValidationError` for a malformed table."""
    return _accepted()[0]


def contained_values() -> Mapping[str, ChartValues]:
    """The supported values of each subchart, by its name, which is also the name of its section."""
    return _accepted()[1]


@cache
def _accepted() -> tuple[Mapping[str, ChartValues], Mapping[str, ChartValues]]:
    """Rows of charts and rows of subcharts; LeaderWorkerSet is a chart, and a subchart of Trainer."""
    of_charts: dict[str, ChartValues] = {}
    contained: dict[str, ChartValues] = {}
    for name, operator in operators().items():
        _, rows = parse_all((FOLDER / f"{name}.yaml").read_bytes())
        for chart, row in rows.items():
            (of_charts if chart in operator.charts else contained)[chart] = ChartValues.model_validate(row)
    return of_charts, contained
