"""Custom resource definitions of the operators: pinned by address and checksum, fetched when they are needed."""

import hashlib
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from console.cluster.client import Cluster
from console.cluster.waiting import is_true
from console.embedded.toolchain import Report
from console.errors import ConsoleError
from console.offline.wire import Json, text_at

LOCK: Final = Path(__file__).parent / "crds.lock.json"
UPSTREAM: Final = Path(__file__).parents[3] / "shared" / "upstream"
"""A copy of the same files beside the repository, looked at before anything is downloaded."""

_TIMEOUT: Final = 60
_PAUSES: Final = (0.0, 0.5, 2.0)
"""Seconds before each try."""
_KIND: Final = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")


@dataclass(frozen=True, slots=True)
class Pinned:
    """One file with a definition.

    Attributes:
        path: where it lies within a copy, such as `crds/kueue/….yaml`.
        project: whose it is, and `version` which of theirs.
        url: its address at a pinned commit.
        sha256: of its bytes.
    """

    path: str
    project: str
    version: str
    url: str
    sha256: str


def read_lock(lock: Path = LOCK) -> list[Pinned]:
    """The pinned files."""
    return [Pinned(**row) for row in json.loads(lock.read_text(encoding="utf-8"))]


def write_lock(index: Path, lock: Path = LOCK) -> None:
    """Pins the definitions of an index such as `../shared/upstream/index.json`, for whoever moves to new versions.

    kwok's own are left out: it takes its stages from a file.
    """
    rows = [Pinned(**row) for row in json.loads(index.read_text(encoding="utf-8")) if row["path"].startswith("crds/")]
    kept = sorted((row for row in rows if row.project != "kwok"), key=lambda row: row.path)
    lock.write_text(json.dumps([asdict(row) for row in kept], indent=1) + "\n", encoding="utf-8")


def find(pinned: Pinned, cache: Path, upstream: Path | None = None) -> bytes:
    """The bytes of a pinned file: from the copy beside the repository, the cache, or its address.

    Args:
        pinned: which file.
        cache: where a download is kept.
        upstream: the copy, in place of `GPU_TENANCY_UPSTREAM` or the usual one.

    Raises:
        ConsoleError: it cannot be had, or is not what was pinned.
    """
    copy = upstream or Path(os.environ.get("GPU_TENANCY_UPSTREAM", UPSTREAM))
    kept = cache / "crds" / pinned.sha256
    for place in (copy / pinned.path, kept):
        if place.is_file() and _sum(content := place.read_bytes()) == pinned.sha256:
            return content
    content = _download(pinned)
    if _sum(content) != pinned.sha256:
        raise ConsoleError(
            f"{pinned.url} has sha256 {_sum(content)}, but {pinned.sha256} was pinned",
            "do not use it; where the change is meant, pin it anew in crds.lock.json",
        )
    kept.parent.mkdir(parents=True, exist_ok=True)
    unfinished = kept.with_suffix(f".{os.getpid()}")
    unfinished.write_bytes(content)
    unfinished.replace(kept)
    return content


def _sum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _download(pinned: Pinned) -> bytes:
    if not pinned.url.startswith(("https://", "http://127.0.0.1:")):
        raise ConsoleError(f"{pinned.url} is no https address", "mend crds.lock.json")
    failure: Exception | None = None
    for pause in _PAUSES:
        time.sleep(pause)
        try:
            with urllib.request.urlopen(pinned.url, timeout=_TIMEOUT) as answer:  # noqa: S310 - the scheme was checked
                return answer.read()
        except (urllib.error.URLError, TimeoutError) as error:
            failure = error
    raise ConsoleError(
        f"{pinned.url} cannot be downloaded: {failure}",
        f"put the file at {UPSTREAM / pinned.path}, or name a folder that has it as GPU_TENANCY_UPSTREAM",
    )


def install(cluster: Cluster, cache: Path, report: Report, pins: Sequence[Pinned] | None = None) -> None:
    """Gives the cluster every pinned definition that it does not have yet, and waits until all are served.

    Raises:
        ConsoleError: a definition cannot be had, or the cluster does not take it.
    """
    wanted = read_lock() if pins is None else pins
    there = {_pin(definition) for definition in cluster.list(*_KIND, metadata_only=True)}
    missing = [pin for pin in wanted if pin.sha256 not in there]
    if not missing:
        return
    report(f"installing {len(missing)} custom resource definitions")
    with ThreadPoolExecutor(8) as pool:
        names = list(pool.map(partial(_install, cluster, cache), missing))
    _wait(cluster, names)


_ANNOTATION: Final = "gpu-tenancy.dev/sha256"


def _pin(definition: Mapping[str, Json]) -> str:
    return text_at(definition, "metadata", "annotations", _ANNOTATION)


def _install(cluster: Cluster, cache: Path, pinned: Pinned) -> str:
    definition = yaml.load(find(pinned, cache), _LOADER)  # noqa: S506 - both loaders are safe ones
    metadata = definition["metadata"]
    metadata["annotations"] = {**metadata.get("annotations", {}), _ANNOTATION: pinned.sha256}
    definition.pop("status", None)
    # Without its operator nobody answers a conversion; every version is stored as it came.
    definition["spec"].pop("conversion", None)
    cluster.apply(definition, metadata_only=True)
    return str(metadata["name"])


_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The C parser where PyYAML has it: these files are long."""


def _wait(cluster: Cluster, names: Iterable[str]) -> None:
    """Until the API server serves every one of them."""
    for name in names:
        cluster.wait_for(
            lambda name=name: is_true(cluster.get(*_KIND, name) or {}, "Established"), what=f"{name} to be served"
        )
    cluster.forget_kinds()
