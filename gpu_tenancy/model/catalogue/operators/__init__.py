"""The operators: each is one file of this folder, `FIELD.yaml`, by its field in `Operators`.

A file has two documents. The first one describes the operator (`Description`). The second one has the values that its
charts and their subcharts accept; `model.catalogue.chart_values` reads it only for a stack that sets values.

The first read of a malformed description raises `pydantic.ValidationError`.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from gpu_tenancy.model.catalogue.releases import Chart
from gpu_tenancy.model.catalogue.rows import Row
from gpu_tenancy.model.fields import Bytes, Cpu
from gpu_tenancy.model.yaml import parse_all

FOLDER: Final = Path(__file__).parent


class Probe(Row):
    """An object whose dry run succeeds when the webhooks of an operator are ready.

    An operator has none if it has no webhooks, if they have `failurePolicy: Ignore`, or if they validate no object of
    this project. Intel's webhooks fail closed and have no probe yet.

    Attributes:
        resource: plural of its kind, as in roles.
        manifest: the object.
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
    """CPU in thousandths, and memory in bytes."""

    cpu: Cpu = 0
    memory: Bytes = 0


class OperatorChart(Chart):
    """A chart of an operator.

    Attributes:
        namespace: where it is installed.
        privileged: whether its pods need privileged access to the node, for devices, drivers or metrics.
        priority_classes: those of its pods, with those of hooks and those that its controller creates.
        daemons: the nodes on which it runs DaemonSets: those with the operator's GPUs (`gpus`), or every node.
        requests: of one replica of each of its Deployments, which run on nodes without GPUs.
        definitions: what keeps its CRDs when the release is uninstalled: Helm, because they are in the chart's `crds`
            folder (`helm`); a value that this program sets (`value`); or nothing, because they are templates
            (`nobody`).
        serves: API groups of this operator: their objects depend on its webhooks, and are deleted before it.
        values: Helm values; the text `{FIELD}` is whether the operator of this field runs in the cluster. What else
            depends on the stack is in `model.plan.operators.values`.
        probe: None without relevant webhooks.
    """

    namespace: Annotated[str, Field(min_length=1)]
    daemons: Literal["gpus", "every"] | None = None
    privileged: bool = False
    priority_classes: tuple[str, ...] = ()
    requests: Requests = Requests()
    definitions: Literal["helm", "value", "nobody"] = "helm"
    serves: tuple[str, ...] = ()
    values: Mapping[str, Any] = {}
    probe: Probe | None = None


class Description(Row):
    """One operator.

    Attributes:
        title: its name, for people.
        description: of its key in the stack, in Markdown.
        example: of its key.
        installed_if: when it is installed by default, in Markdown.
        needed: when a stack needs it: a condition of `model.plan.needs`.
        required: the condition by which a stack does not work without it; default: `needed`.
        gpus: domain of the GPU resources that it advertises, with a slash.
        after: field of the operator that is installed before it.
        requires: reasons why it needs other operators if it is installed, by their fields.
        charts: by the name of the release, in the order of installation. The stack's values apply to the last one.
        definitions: its custom resource definitions, which `embedded.definitions.pins` reads.
        controllers: its programs on the embedded platform, which `embedded.controllers.table` reads.
    """

    title: str
    description: str
    example: Any
    installed_if: str
    needed: str
    required: str | None = None
    gpus: str = ""
    after: str | None = None
    requires: Mapping[str, str] = {}
    charts: Annotated[Mapping[str, OperatorChart], Field(min_length=1)]
    definitions: tuple[Mapping[str, Any], ...] = ()
    controllers: Mapping[str, Any] = {}

    @property
    def release(self) -> str:
        """The release that the stack's version, digest and values apply to."""
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
    """The charts of all operators by the name of their release, in the order of installation."""
    return {name: chart for operator in operators().values() for name, chart in operator.charts.items()}


def accepted_values() -> Iterator[tuple[Description, Mapping[str, Any]]]:
    """The second document of each file: rows by chart and by subchart."""
    for name, operator in operators().items():
        _, rows = parse_all((FOLDER / f"{name}.yaml").read_bytes())
        yield operator, rows
