"""Renders Helm charts from Go modules, with the values of a stack's releases, by Helm's own engine."""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.progress import Report
from gpu_tenancy.embedded.building import KUBERNETES, required_version, source_folder
from gpu_tenancy.embedded.controllers.table import Row
from gpu_tenancy.embedded.definitions import module_folders
from gpu_tenancy.embedded.definitions.pins import Module
from gpu_tenancy.embedded.toolchain import find_go
from gpu_tenancy.kube.client import Manifest
from gpu_tenancy.model.plan.operators import ReleasePlan

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
