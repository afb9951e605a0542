"""Charts of operators, rendered by Helm's own engine with the values of releases."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import platformdirs
import pytest
import yaml
from originals import original

from gpu_tenancy.base.json import Json, at, map_at, maps_at, text_at
from gpu_tenancy.base.progress import Report
from gpu_tenancy.embedded.building import find_go
from gpu_tenancy.embedded.controllers import table
from gpu_tenancy.embedded.controllers.table import RENDERER, chart_folder, read_rows, render
from gpu_tenancy.embedded.definitions import module_folders
from gpu_tenancy.embedded.definitions.pins import Module, read_pins
from gpu_tenancy.kube.client import Manifest
from gpu_tenancy.model.catalogue.operators import charts, operators
from gpu_tenancy.model.catalogue.releases import cloud_charts
from gpu_tenancy.model.plan.operators import ReleasePlan

NOT_RENDERED: Final = {
    "kube-prometheus-stack": "its repository has no Go module",
    "prometheus-adapter": "its repository has no Go module",
    "keda": "its repository has no Go module",
    "intel-device-plugins-operator": "its repository has no Go module",
    "intel-device-plugins-gpu": "its repository has no Go module",
    "gpu-operator": "the module proxy does not have its module",
    "network-operator": "the module proxy does not have its module",
    "gpu-operator-charts": "the module proxy does not have its module",
    "external-secrets": "the module proxy has only old versions of its module",
}
"""The charts that are rendered only if `originals.FOLDER` has them, and why: their rows name what they were read from.

On 2026-11-25 they were rendered from their repositories, in the installed versions, but external-secrets in 2.9.0; on
2026-11-26 the charts of clouds too, Karpenter's at tag v1.14.1 with the version that its release writes into it.
"""

RENDERED: Final = tuple(name for name in charts() if name not in NOT_RENDERED)

_FOLDERS: Final = {
    "cert-manager": "deploy/charts/cert-manager",
    "dra-driver-nvidia-gpu": "deployments/helm/dra-driver-nvidia-gpu",
    "fluid": "charts/fluid/fluid",
}
"""The folder of a chart whose module has its definitions, and none of whose programs runs on the platform."""

TEMPLATED: Final = ("Deployment", "DaemonSet", "StatefulSet", "Job")  # kinds whose controllers create pods


def rendered(release: ReleasePlan, report: Report) -> list[Manifest]:
    """The objects of a release's chart, with hooks and those of charts in it, without definitions in `crds`."""
    store = platformdirs.user_cache_path("gpu-tenancy")
    program = table.find({}, store, report)[0][RENDERER]
    if release.name in {**NOT_RENDERED, **cloud_charts()}:
        return render(program, of_upstream(release.name), release)
    if release.name in _FOLDERS:
        return render(program, _of_module(release.name, store, report), release)
    (operator,) = (name for name, row in operators().items() if release.name in row.charts)
    rows = {name: row for name, row in read_rows().items() if row.operator == operator}
    return [
        found
        for name, row in rows.items()
        for found in render(program, chart_folder(name, row, store, report), _part(release, row.part))
    ]


def of_upstream(chart: str) -> Path:
    """The whole chart in its pinned version; the test is skipped without it."""
    folder = original(f"charts/{chart}/templates").parent
    has, pinned = (
        yaml.safe_load((folder / "Chart.yaml").read_text(encoding="utf-8"))["version"],
        {**charts(), **cloud_charts()}[chart].version,
    )
    if has != pinned:
        pytest.skip(f"not compared with the original: {folder} is {has}, and {pinned} is installed")
    return folder


def _part(release: ReleasePlan, part: str) -> ReleasePlan:
    """The release of a chart in a chart, which has the values below its name."""
    return ReleasePlan(
        release.name,
        release.chart,
        release.repository,
        release.version,
        release.namespace,
        values=release.values.get(part, {}) if part else release.values,
        serves=(),
    )


@cache
def _of_module(chart: str, store: Path, report: Report) -> Path:
    source = next(pin.source for pin in read_pins() if pin.operator == chart)
    assert isinstance(source, Module)
    assert source.version == f"v{charts()[chart].version.removeprefix('v')}"
    return module_folders([source], find_go((1, 21), store, report))[source] / _FOLDERS[chart]


def templates(objects: list[Manifest]) -> Iterator[tuple[Manifest, dict[str, Json]]]:
    """The objects that create pods, each with the specification of its pods."""
    for found in objects:
        if found["kind"] in TEMPLATED:
            yield found, dict(map_at(found, "spec", "template", "spec"))


def beyond_baseline(pod: dict[str, Json]) -> bool:
    """Whether a pod has host namespaces, host paths or privileged containers, which the level `baseline` forbids."""
    host = any(at(pod, key) is True for key in ("hostNetwork", "hostPID", "hostIPC"))
    paths = any("hostPath" in volume for volume in maps_at(pod, "volumes"))
    containers = [*maps_at(pod, "containers"), *maps_at(pod, "initContainers")]
    return host or paths or any(at(one, "securityContext", "privileged") is True for one in containers)


def requested(pod: dict[str, Json], resource: str) -> Iterator[str]:
    """The requests of a pod's containers for a resource: their limits if they have no request."""
    for container in maps_at(pod, "containers"):
        amounts = {**map_at(container, "resources", "limits"), **map_at(container, "resources", "requests")}
        yield text_at(amounts, resource) or str(amounts.get(resource, 0))
