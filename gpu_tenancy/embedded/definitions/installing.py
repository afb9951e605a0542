"""Installs custom resource definitions on a cluster, and waits until they are served."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

from gpu_tenancy.base.json import Json, text_at
from gpu_tenancy.base.progress import Report
from gpu_tenancy.base.tables import read_table
from gpu_tenancy.embedded.definitions.pins import Pin
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.waiting import is_true

_KIND: Final = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")
_ANNOTATION: Final = "gpu-tenancy.dev/sha256"
"""The checksum of the file of an installed definition."""


def install(cluster: Cluster, files: Mapping[Pin, Path], report: Report) -> None:
    """Installs every missing definition, and waits until all of them are served.

    Args:
        cluster: of the embedded platform.
        files: the file of each definition, as `fetch` returns them.
        report: receives a line with the number of definitions.

    Raises:
        ConsoleError: the cluster rejects a definition, or a definition is not served in time.
    """
    present = {_checksum(definition) for definition in cluster.list(*_KIND, metadata_only=True)}
    missing = [pin for pin in files if pin.sha256 not in present]
    if not missing:
        return
    report(f"installing {len(missing)} custom resource definitions")
    with ThreadPoolExecutor(8) as pool:
        names = list(pool.map(partial(_install, cluster), missing, (files[pin] for pin in missing)))
    for name in names:
        cluster.wait_for(
            lambda name=name: is_true(cluster.get(*_KIND, name) or {}, "Established"), what=f"{name} to be served"
        )
    cluster.forget_kinds()


def _checksum(definition: Mapping[str, Json]) -> str:
    return text_at(definition, "metadata", "annotations", _ANNOTATION)


def _install(cluster: Cluster, pin: Pin, file: Path) -> str:
    definition = read_table(file)
    metadata = definition["metadata"]
    metadata["annotations"] = {**metadata.get("annotations", {}), _ANNOTATION: pin.sha256}
    definition.pop("status", None)
    # Conversion needs the operator's webhook, which is not installed; objects are stored without conversion.
    definition["spec"].pop("conversion", None)
    cluster.apply(definition, metadata_only=True)
    return str(metadata["name"])
