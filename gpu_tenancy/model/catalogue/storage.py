"""Services of each cloud for storage of teams: the table `storage.yaml`."""

import datetime as dt
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from gpu_tenancy.model.catalogue.reserved import Row
from gpu_tenancy.model.spec.base import Bytes
from gpu_tenancy.model.spec.data import StorageMode
from gpu_tenancy.model.tables import Url, read_table


class StorageService(Row):
    """A service that volumes of a StorageClass are created in.

    Attributes:
        title: its name.
        modes: what volumes it has.
        provisioner: CSI driver of the StorageClass.
        parameters: of a StorageClass that is made here; empty where it must exist.
        needs: what such a StorageClass requires; empty where it is made here.
        immediate: whether volumes are created before a pod needs them.
        min: smallest size in bytes; None if unknown.
        snapshots: whether its driver takes VolumeSnapshots.
        source: URL of the facts.
        date: when it was read.
    """

    title: str
    modes: tuple[StorageMode, ...]
    provisioner: str
    parameters: Mapping[str, str] = {}
    needs: str = ""
    immediate: bool = False
    min: Bytes | None = None
    snapshots: bool
    source: Url
    date: dt.date


@cache
def storage_services() -> Mapping[str, Mapping[str, StorageService]]:
    """The services of each cloud by name, the default of each mode first."""
    rows: Mapping[str, Mapping[str, Any]] = read_table(Path(__file__).with_name("storage.yaml"))
    return {
        cloud: {name: StorageService.model_validate(row, strict=False) for name, row in services.items()}
        for cloud, services in rows.items()
    }
