"""The controllers that the embedded platform can run: of operators, from their descriptions, and `controllers.yaml`.

Only addresses, certificates, leader election and what needs a file outside of the platform's folder differ from the
charts. Texts of a program can have these placeholders: `{health}`, `{metrics}`, `{webhook}`, `{api}`: free ports; the
chart's APIServices are served at `{api}`. `{kubeconfig}`: of the program's ServiceAccount. `{certificates}`: folder
with tls.crt, tls.key, ca.crt and ca.key. `{authority}`: the cluster's CA. `{nodes}`: the port of kwok.
"""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.progress import Report
from gpu_tenancy.embedded.building import KUBERNETES, required_version, source_folder
from gpu_tenancy.embedded.definitions import module_folders
from gpu_tenancy.embedded.definitions.pins import Module
from gpu_tenancy.embedded.toolchain import find_go
from gpu_tenancy.kube.client import Manifest
from gpu_tenancy.model.catalogue.operators import operators
from gpu_tenancy.model.plan.operators import ReleasePlan
from gpu_tenancy.model.yaml import read_table

TABLE: Final = Path(__file__).with_name("controllers.yaml")


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Ready(_Row):
    """What answers 200 when a program works.

    Attributes:
        port: name of a port.
        path: of the URL.
    """

    port: str
    path: str
    scheme: Literal["http", "https"] = "http"


class Program(_Row):
    """How one Deployment of a chart runs as a process.

    Attributes:
        program: file name of the program.
        package: Go package that it is built from.
        arguments: flags that replace the chart's flags of the same name, or are added.
        settings: keys that replace those of the chart's configuration file.
        environment: variables that replace the chart's.
        authority: DNS name that the program expects in its CA certificate; empty if it does not check.
    """

    program: str
    package: str
    ready: Ready
    arguments: tuple[str, ...] = ()
    settings: Mapping[str, Any] = Field(default_factory=dict[str, Any])
    environment: Mapping[str, str] = Field(default_factory=dict[str, str])
    authority: str = ""


class Listed(_Row):
    """A ConfigMap's key with objects that a Job of the chart applies."""

    config_map: str = Field(alias="configMap")
    key: str


class Row(_Row):
    """One chart and its programs, by the names of their Deployments.

    Attributes:
        operator: its field; it runs if the stack uses it. Empty for what a cluster has anyway.
        need: in `gpu_tenancy/model/catalogue/needs.yaml`, without an operator: it runs if the stack needs this.
        namespace: without an operator.
        source: folder beside this package with the go.mod and go.sum of module and programs.
        module: Go module with the chart.
        chart: folder of the chart in the module.
        version: of the module, if nothing of it is built.
        sum: checksum of the module with this version, as in a go.sum.
        go_mod_sum: of its go.mod.
        part: key of the release's values, if the chart is a dependency of the operator's; empty if it is its own.
        values: added to the release's values, because no node runs the pods; lists are appended.
        then: objects to apply when the programs work.
    """

    source: str
    module: str
    chart: str
    programs: Mapping[str, Program]
    operator: str = ""
    need: str = ""
    namespace: str = ""
    version: str = ""
    sum: str = ""
    go_mod_sum: str = Field("", alias="goModSum")
    part: str = ""
    values: Mapping[str, Any] = Field(default_factory=dict[str, Any])
    then: Listed | None = None


@cache
def read_rows() -> Mapping[str, Row]:
    """The rows, by their charts, in the order of their start."""
    of_operators = {
        chart: Row.model_validate({"operator": name, **row})
        for name, operator in operators().items()
        for chart, row in operator.controllers.items()
    }
    return of_operators | TypeAdapter(dict[str, Row]).validate_python(read_table(TABLE))


RENDERER: Final = "chart"
"""The program that renders a chart; its source is in the folder `controlplane`."""
_GO: Final = (1, 21)


def module_of(row: Row) -> Module:
    """The module of a row, in its own version, or else that of its source's go.mod.

    Raises:
        ConsoleError: go.mod does not require the module.
    """
    if row.version:
        return Module(row.module, row.version, row.chart, (row.sum, row.go_mod_sum))
    return Module(row.module, required_version(row.source, row.module), row.chart)


def chart_folder(name: str, row: Row, cache: Path, report: Report) -> Path:
    """The folder of a chart in the cache; it is copied from the Go module, whose checksum go.sum has, if it is missing.

    Raises:
        ConsoleError: the module cannot be downloaded, or has no such folder.
    """
    module = module_of(row)
    folder = cache / "charts" / f"{name}-{module.version}"
    if folder.is_dir():
        return folder
    report(f"downloading the chart of {name} {module.version}")
    sums = None if row.version else source_folder(row.source)
    origin = module_folders([module], find_go(_GO, cache, report), sums)[module] / module.folder
    if not (origin / "Chart.yaml").is_file():
        raise ConsoleError(f"module {module.query} has no chart {module.folder}", "correct the folder in the table")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as unfinished:
        copy = shutil.copytree(origin, Path(unfinished) / "chart", copy_function=shutil.copyfile)
        for place in (copy, *copy.rglob("*/")):
            place.chmod(0o755)  # folders of Go's module cache are read-only
        copy.rename(folder)
    return folder


def render(program: Path, chart: Path, release: ReleasePlan) -> list[Manifest]:
    """The objects of a chart, except definitions in its folder `crds`.

    Args:
        program: the renderer.
        chart: folder of the chart.
        release: its name, namespace and values.

    Raises:
        ConsoleError: Helm rejects the chart or its values.
    """
    wanted = {
        "chart": str(chart),
        "name": release.name,
        "namespace": release.namespace,
        "kubernetes": KUBERNETES,
        "values": release.values,
    }
    done = subprocess.run([program], input=json.dumps(wanted), capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConsoleError(
            f"chart {chart.name} cannot be rendered: {done.stderr.strip()}",
            f"correct the values of {release.name} in `operators` of the stack",
        )
    return json.loads(done.stdout)


def with_more(values: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Values with more values: mappings are merged, lists appended, other values replaced."""
    merged: dict[str, Any] = dict(values)
    for key, value in more.items():
        before = merged.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            merged[key] = with_more(cast("Mapping[str, Any]", before), cast("Mapping[str, Any]", value))
        elif isinstance(before, list) and isinstance(value, list):
            merged[key] = [*cast("list[Any]", before), *cast("list[Any]", value)]
        else:
            merged[key] = value
    return merged
