"""Custom resource definitions of the operators: pinned, fetched when a stack needs them, installed on the platform.

They come from a folder of copies, the cache, Go modules or the web.
"""

import hashlib
import json
import os
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

from gpu_tenancy.base.errors import ConsoleError, naming
from gpu_tenancy.base.json import Json, map_at, text_at
from gpu_tenancy.base.output import write_text
from gpu_tenancy.base.progress import Report
from gpu_tenancy.embedded.definitions.pins import Module, Pin
from gpu_tenancy.embedded.definitions.stored import reduced
from gpu_tenancy.embedded.toolchain import Go, find_go, trusting
from gpu_tenancy.kube.apply import await_kinds
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.live import ApplyError

UPSTREAM: Final = "GPU_TENANCY_UPSTREAM"
"""Environment variable: a folder with copies of upstream files, laid out as `crds/OPERATOR/FILE`."""

_GO: Final = (1, 21)
"""The minimum Go whose `go mod download` verifies modules by a go.sum without requirements in go.mod."""

_TIMEOUT: Final = 60
_PAUSES: Final = (0.0, 0.5, 2.0)
"""Seconds to wait before each attempt."""


def fetch(pins: Sequence[Pin], cache: Path, report: Report) -> Mapping[Pin, Path]:
    """The file of each pinned definition; missing files are downloaded into the cache.

    Args:
        pins: the definitions.
        cache: folder for downloads; every file in it is verified before each use.
        report: receives a line before a download.

    Raises:
        ConsoleError: a definition cannot be downloaded, or its checksum differs from the pinned one.
    """
    copies = os.environ.get(UPSTREAM)
    if copies and not Path(copies).is_dir():
        raise ConsoleError(f"{UPSTREAM}: {copies} is not a folder", "set it to a folder of upstream files, or unset it")
    present = {pin: file for pin in pins if (file := _present(pin, cache, Path(copies) if copies else None))}
    missing = [pin for pin in pins if pin not in present]
    if missing:
        operators = dict.fromkeys(f"{pin.operator} {pin.version}" for pin in missing)
        report(f"downloading custom resource definitions: {', '.join(operators)}")
        _from_modules(missing, cache, report)
        for pin in missing:
            if isinstance(pin.source, str):
                _keep(pin, _download(pin, pin.source, cache), cache)
    return present | {pin: cached(pin, cache) for pin in missing}


def cached(pin: Pin, cache: Path) -> Path:
    """The path of a definition in the cache, where a user can also put it."""
    return cache / "definitions" / f"{pin.operator}-{pin.version}" / pin.file


def _present(pin: Pin, cache: Path, copies: Path | None) -> Path | None:
    places = [copies / pin.path] if copies else []
    for file in (*places, cached(pin, cache)):
        if file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest() == pin.sha256:
            return file
    return None


def _from_modules(pins: Sequence[Pin], cache: Path, report: Report) -> None:
    modules = {pin: pin.source for pin in pins if isinstance(pin.source, Module)}
    if not modules:
        return
    folders = module_folders(list(dict.fromkeys(modules.values())), find_go(_GO, cache, report))
    for pin, module in modules.items():
        file = folders[module] / module.folder / pin.file
        if not file.is_file():
            raise ConsoleError(
                f"module {module.query} has no file {module.folder}/{pin.file}",
                "correct the folder or the file of the definitions",
            )
        _keep(pin, file.read_bytes(), cache)


def module_folders(modules: Sequence[Module], go: Go, sums: Path | None = None) -> Mapping[Module, Path]:
    """The folder of each module in Go's module cache; missing modules are downloaded.

    Args:
        modules: Go modules, at exact versions.
        go: the Go program.
        sums: folder of the go.mod and go.sum that verify the modules; None if the modules have their checksums.

    Raises:
        ConsoleError: a module cannot be downloaded, or differs from its checksum.
    """
    queries = dict.fromkeys(module.query for module in modules)
    with tempfile.TemporaryDirectory() as folder:
        if sums is None:
            write_text(Path(folder) / "go.mod", f"module definitions\n\ngo {'.'.join(map(str, _GO))}\n")
            write_text(Path(folder) / "go.sum", "".join(dict.fromkeys(map(_go_sum, modules))))
        done = go.output("mod", "download", "-json", *queries, folder=sums or Path(folder))
    answers = {f"{answer['Path']}@{answer['Version']}": answer for answer in _documents(done.stdout)}
    for query in queries:
        if "Dir" not in (answer := answers.get(query, {})):
            reason = answer.get("Error") or (done.stderr.strip().splitlines() or ["no reason printed"])[0]
            raise ConsoleError(
                f"Go module {query} cannot be downloaded: {reason}",
                trusting(
                    reason,
                    f"set GOPROXY to a module proxy that has it, or set {UPSTREAM} to a folder with the definitions",
                ),
            )
    return {module: Path(answers[module.query]["Dir"]) for module in modules}


def _go_sum(module: Module) -> str:
    """The lines of a module; without them, Go would ask its checksum database."""
    if module.sums is None:
        raise ValueError(f"{module.query} has no checksums")
    of_module, of_go_mod = module.sums
    name, version = module.name, module.version
    return f"{name} {version} {of_module}\n{name} {version}/go.mod {of_go_mod}\n"


def _documents(text: str) -> Iterator[dict[str, Any]]:
    """Concatenated JSON objects."""
    decoder, rest = json.JSONDecoder(), text.strip()
    while rest:
        document, end = decoder.raw_decode(rest)
        yield document
        rest = rest[end:].lstrip()


def _keep(pin: Pin, content: bytes, cache: Path) -> None:
    """Verifies content and writes it into the cache atomically."""
    actual = hashlib.sha256(content).hexdigest()
    if actual != pin.sha256:
        origin = pin.source.query if isinstance(pin.source, Module) else pin.source
        raise ConsoleError(
            f"{pin.file} of {origin}: checksum mismatch: sha256 {actual}, but {pin.sha256} is pinned",
            "do not use the file; if the change is expected, pin the new checksum",
        )
    file = cached(pin, cache)
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(f".{os.getpid()}")
    with naming(file):
        unfinished.write_bytes(content)
    unfinished.replace(file)


def _download(pin: Pin, address: str, cache: Path) -> bytes:
    if not address.startswith(("https://", "http://127.0.0.1:")):
        raise ConsoleError(f"{address} is not an https URL", "correct the URL of the definitions")
    failure: Exception | None = None
    for pause in _PAUSES:
        time.sleep(pause)
        try:
            with urllib.request.urlopen(address, timeout=_TIMEOUT) as answer:  # noqa: S310 - the scheme was checked
                return answer.read()
        except (urllib.error.URLError, TimeoutError) as error:
            failure = error
    raise ConsoleError(
        f"{pin.file} of {pin.operator} {pin.version} cannot be downloaded from {address}: {failure}",
        trusting(str(failure), f"put the file at {cached(pin, cache)}, or set {UPSTREAM} to a folder with {pin.path}"),
    )


_KIND: Final = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")
_ANNOTATION: Final = "gpu-tenancy.dev/sha256"
"""The checksum of the file of an installed definition."""


def install(cluster: Cluster, files: Mapping[Pin, Path], cache: Path, report: Report) -> bool:
    """Installs every missing definition, and waits until all of them are served; returns whether any was missing.

    Args:
        cluster: of the embedded platform.
        files: the file of each definition, as `fetch` returns them.
        cache: folder for copies of them.
        report: receives a line with the number of definitions.

    Raises:
        ConsoleError: the cluster rejects a definition, or a definition is not served in time.
    """
    there = cluster.list(*_KIND, metadata_only=True)
    present = {text_at(definition, "metadata", "annotations", _ANNOTATION) for definition in there}
    missing = {pin: file for pin, file in files.items() if pin.sha256 not in present}
    if not missing:
        return False
    report(f"installing {len(missing)} custom resource definitions")
    definitions = annotated(missing, cache)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(partial(cluster.apply, metadata_only=True), definitions))
    cluster.forget_kinds()
    if failures := await_kinds(cluster, definitions):
        raise ApplyError(failures, ())
    return True


def annotated(files: Mapping[Pin, Path], cache: Path) -> list[Manifest]:
    """Each definition as it is installed: reduced, with the checksum of its file.

    Args:
        files: the file of each definition, as `fetch` returns them.
        cache: folder for copies of them.
    """
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(partial(_annotated, cache), files.items()))


def _annotated(cache: Path, of: tuple[Pin, Path]) -> Manifest:
    pin, file = of
    definition = reduced(pin, file, cache)
    metadata = map_at(definition, "metadata")
    annotations: Json = {**map_at(metadata, "annotations"), _ANNOTATION: pin.sha256}
    return {**definition, "metadata": {**metadata, "annotations": annotations}}
