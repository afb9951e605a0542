"""The charts whose controllers run on the embedded platform: their table, and the choice and programs for a stack.

The rows are in the descriptions of operators, and in `controllers.yaml`. Only addresses, certificates, leader election
and files outside of the platform's folder differ from the charts. Placeholders in texts of a program: `{health}`,
`{metrics}`, `{webhook}`, `{api}`: free ports; the chart's APIServices are served at `{api}`. `{kubeconfig}`: of the
program's ServiceAccount. `{certificates}`: folder with tls.crt, tls.key, ca.crt and ca.key. `{authority}`: the
cluster's CA. `{nodes}`: the port of kwok.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.progress import Report
from gpu_tenancy.embedded import building
from gpu_tenancy.embedded.definitions import GO, module_folders
from gpu_tenancy.embedded.definitions.pins import Module
from gpu_tenancy.embedded.processes import alone
from gpu_tenancy.kube.client import Manifest
from gpu_tenancy.model.catalogue.operators import operators
from gpu_tenancy.model.checks.operators import places
from gpu_tenancy.model.plan.operators import ReleasePlan, running
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.yaml import read_table

TABLE: Final = Path(__file__).with_name("controllers.yaml")


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Ready(_Row):
    """The URL that answers 200 when a program is ready, with the name of its port."""

    port: str
    path: str
    scheme: Literal["http", "https"] = "http"


class Program(_Row):
    """How one Deployment of a chart runs as a process, built from a Go package."""

    program: str
    package: str
    ready: Ready
    arguments: tuple[str, ...] = ()  # flags; they and the next two replace or extend the chart's
    settings: Mapping[str, Any] = Field(default_factory=dict[str, Any])  # keys of its configuration file
    environment: Mapping[str, str] = Field(default_factory=dict[str, str])
    authority: str = ""  # the DNS name that the program expects in its CA certificate; empty if it does not check


class Listed(_Row):
    """A ConfigMap's key with objects that a Job of the chart applies."""

    config_map: str = Field(alias="configMap")
    key: str


class Row(_Row):
    """One chart and its programs, by the names of their Deployments."""

    source: str  # folder beside this package with the go.mod and go.sum of module and programs
    module: str
    chart: str
    programs: Mapping[str, Program]
    operator: str = ""  # its field; the chart runs if the stack uses it; empty for a component of every cluster
    need: str = ""  # in `gpu_tenancy/model/catalogue/needs.yaml`, without an operator: runs if the stack needs this
    namespace: str = ""
    version: str = ""  # of the module, if no program is built from it
    sum: str = ""  # checksum of the module with this version, as in a go.sum
    go_mod_sum: str = Field("", alias="goModSum")  # of its go.mod
    # Key of the release's values, if the chart is a dependency of the operator's; empty if it is its own
    part: str = ""
    # Added to the release's values, because no node runs the pods; lists are appended.
    values: Mapping[str, Any] = Field(default_factory=dict[str, Any])
    then: Listed | None = None  # objects to apply when the programs are ready


@cache
def read_rows() -> Mapping[str, Row]:
    """The rows, by their charts, in the order of their start."""
    return {
        chart: Row.model_validate({"operator": name, **row})
        for name, operator in operators().items()
        for chart, row in operator.controllers.items()
    } | TypeAdapter(dict[str, Row]).validate_python(read_table(TABLE))


RENDERER: Final = "chart"  # the program that renders a chart; its source is in the folder `controlplane`


def module_of(row: Row) -> Module:
    """The module of a row, in its version, or else in its source's go.mod; raises ConsoleError if neither has it."""
    if row.version:
        return Module(row.module, row.version, row.chart, (row.sum, row.go_mod_sum))
    return Module(row.module, building.required_version(row.source, row.module), row.chart)


def chart_folder(name: str, row: Row, cache: Path, report: Report) -> Path:
    """The folder of a chart in the cache, copied from its verified Go module; raises ConsoleError if that fails."""
    folder = cache / "charts" / f"{name}-{module_of(row).version}"
    if not folder.is_dir():
        with alone(cache / "charts.lock", report, "downloading a chart"):
            if not folder.is_dir():  # another process may have copied it meanwhile
                _copy_chart(name, row, folder, cache, report)
    return folder


def _copy_chart(name: str, row: Row, folder: Path, cache: Path, report: Report) -> None:
    module = module_of(row)
    report(f"downloading the chart of {name} {module.version}")
    sums = None if row.version else building.source_folder(row.source)
    origin = module_folders([module], building.find_go(GO, cache, report), sums)[module] / module.folder
    if not (origin / "Chart.yaml").is_file():
        raise ConsoleError(f"module {module.query} has no chart {module.folder}", "correct the folder in the table")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as unfinished:
        copy = shutil.copytree(origin, Path(unfinished) / "chart", copy_function=shutil.copyfile)
        for place in (copy, *copy.rglob("*/")):
            place.chmod(0o755)  # folders of Go's module cache are read-only
        copy.rename(folder)


def render(program: Path, chart: Path, release: ReleasePlan) -> list[Manifest]:
    """The objects of a chart, except definitions in its folder `crds`; raises ConsoleError if Helm rejects it."""
    wanted = {
        "chart": str(chart),
        "name": release.name,
        "namespace": release.namespace,
        "kubernetes": building.KUBERNETES,
        "values": release.values,
    }
    done = subprocess.run([program], input=json.dumps(wanted), capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConsoleError(
            f"chart {chart.name} cannot be rendered: {done.stderr.strip()}",
            f"correct the values of {release.name} in `operators` of the stack",
        )
    return json.loads(done.stdout)


@dataclass(frozen=True, slots=True)
class Wanted:
    """One chart whose controllers should run, with the stack's values, and the path of each program by its name."""

    name: str
    row: Row
    release: ReleasePlan
    programs: Mapping[str, Path]

    @property
    def version(self) -> str:
        """The version of the chart's module."""
        return module_of(self.row).version

    @property
    def fingerprint(self) -> str:
        """A digest; if it changes, the controllers must be started again."""
        content = [self.row.model_dump(mode="json"), self.release.values, self.release.reads, self.version]
        files = [f"{path} {path.stat().st_mtime_ns}" for path in self.programs.values()]
        return sha256(json.dumps([content, files], sort_keys=True, default=str).encode()).hexdigest()


# Environment variable: a folder with programs of controllers, by their names in the table; used first.
FOLDER: Final = "GPU_TENANCY_CONTROLLERS"


def rows_of(tree: Tree) -> Mapping[str, Row]:
    """The rows of the table whose operators run in a stack's cluster, or that the stack needs there."""
    operators = running(tree)
    return {
        name: row
        for name, row in read_rows().items()
        if (row.operator in operators if row.operator else any(places(tree, row.need)))
    }


def wanted(stack: Stack, programs: Mapping[str, Path]) -> tuple[Wanted, ...]:
    """The charts whose programs are all available, with the values that the stack gives them."""
    tree = Tree(stack)
    releases = {name: plans[-1] for name, plans in running(tree).items()}
    found: list[Wanted] = []
    for name, row in rows_of(tree).items():
        needed = [program.program for program in row.programs.values()]
        if programs.keys() >= set(needed):
            # What a cluster has anyway has the chart's own values.
            anyway = ReleasePlan(name, row.chart, None, module_of(row).version, row.namespace, values={}, serves=())
            release = releases[row.operator] if row.operator else anyway
            found.append(Wanted(name, row, release, {name: programs[name] for name in (RENDERER, *needed)}))
    return tuple(found)


def present(program: str, source: str, cache: Path) -> Path | None:
    """A program that is on this machine, or None; raises ConsoleError if `GPU_TENANCY_CONTROLLERS` is not a folder."""
    named = os.environ.get(FOLDER)
    if named and not Path(named).is_dir():
        raise ConsoleError(f"{FOLDER}: {named} is not a folder", "set it to a folder with programs, or unset it")
    if named and (given := Path(named) / program).is_file():
        return given
    return file if (file := building.built(cache, program, source)).is_file() else None


def prepared(rows: Mapping[str, Row], cache: Path) -> bool:
    """Whether all programs of these rows are on this machine."""
    return all(present(program, source, cache) for program, source, _ in _needed(rows))


def find(rows: Mapping[str, Row], cache: Path, report: Report) -> tuple[Mapping[str, Path], Mapping[str, str]]:
    """Finds or builds the programs of these rows, and the renderer of charts.

    Returns the path of each available program, and the reason for each other program. Raises ConsoleError if the
    renderer, which needs only public modules of Kubernetes, cannot be built.
    """
    needed = list(_needed(rows))
    unavailable: dict[str, str] = {}
    for source in sorted({source for _, source, _ in needed}):
        what = ", ".join(f"{name} {module_of(row).version}" for name, row in rows.items() if row.source == source)

        def missing(source: str = source) -> dict[str, str]:
            return {name: package for name, of, package in needed if of == source and not present(name, of, cache)}

        try:
            if missing():
                with alone(cache / "programs.lock", report, "downloading or building programs"):
                    if left := missing():
                        building.build(cache, report, left, source=source, what=what or "the renderer of charts")
        except ConsoleError as error:
            if source == building.CONTROL_PLANE:
                raise
            unavailable |= dict.fromkeys(missing(), error.what)
    return {program: path for program, source, _ in needed if (path := present(program, source, cache))}, unavailable


def _needed(rows: Mapping[str, Row]) -> Iterable[tuple[str, str, str]]:
    yield RENDERER, building.CONTROL_PLANE, f"./{RENDERER}"
    for row in rows.values():
        yield from ((program.program, row.source, program.package) for program in row.programs.values())
