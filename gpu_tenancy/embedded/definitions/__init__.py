"""Custom resource definitions of the operators: pinned, fetched when a stack needs them, installed on the platform.

They come from a folder of copies, the cache, Go modules or the web; the platform has them without descriptions.
"""

import hashlib
import http.client
import json
import os
import ssl
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from gpu_tenancy.base.errors import ConsoleError, naming
from gpu_tenancy.base.json import Json, map_at, maps_at, text_at
from gpu_tenancy.base.output import write_text
from gpu_tenancy.base.progress import Report, patient
from gpu_tenancy.base.texts import base64_of
from gpu_tenancy.embedded.building import Go, find_go, trusting
from gpu_tenancy.embedded.definitions.pins import Module, Pin
from gpu_tenancy.kube.apply import await_kinds
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.live import ApplyError
from gpu_tenancy.model.yaml import read_table

# Environment variable: a folder with copies of upstream files, laid out as `crds/OPERATOR/FILE`.
UPSTREAM: Final = "GPU_TENANCY_UPSTREAM"

# The minimum Go whose `go mod download` verifies modules by a go.sum without requirements in go.mod.
GO: Final = (1, 21)

_TIMEOUT: Final = 60.0
_PAUSES: Final = (0.0, 0.5, 2.0)  # seconds to wait before each attempt


def fetch(pins: Sequence[Pin], cache: Path, report: Report) -> Mapping[Pin, Path]:
    """The file of each definition, downloaded if missing, verified at each use; raises ConsoleError if either fails."""
    copies = os.environ.get(UPSTREAM)
    if copies and not Path(copies).is_dir():
        raise ConsoleError(f"{UPSTREAM}: {copies} is not a folder", "set it to a folder of upstream files, or unset it")
    files: dict[Pin, Path] = {}
    for pin in pins:
        for file in (*([Path(copies) / pin.path] if copies else []), cached(pin, cache)):
            if file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest() == pin.sha256:
                files.setdefault(pin, file)
    missing = [pin for pin in pins if pin not in files]
    if missing:
        operators = dict.fromkeys(f"{pin.operator} {pin.version}" for pin in missing)
        report(f"downloading custom resource definitions: {', '.join(operators)}")
        _from_modules(missing, cache, report)
        for pin in missing:
            if isinstance(pin.source, str):
                _keep(pin, _download(pin, pin.source, cache), cache)
    return files | {pin: cached(pin, cache) for pin in missing}


def cached(pin: Pin, cache: Path) -> Path:
    """The path of a definition in the cache, where a user can also put it."""
    return cache / "definitions" / f"{pin.operator}-{pin.version}" / pin.file


def _from_modules(pins: Sequence[Pin], cache: Path, report: Report) -> None:
    modules = {pin: pin.source for pin in pins if isinstance(pin.source, Module)}
    if not modules:
        return
    folders = module_folders(list(dict.fromkeys(modules.values())), find_go(GO, cache, report))
    for pin, module in modules.items():
        file = folders[module] / module.folder / pin.file
        if not file.is_file():
            raise ConsoleError(
                f"module {module.query} has no file {module.folder}/{pin.file}",
                "correct the folder or the file of the definitions",
            )
        _keep(pin, file.read_bytes(), cache)


def module_folders(modules: Sequence[Module], go: Go, sums: Path | None = None) -> Mapping[Module, Path]:
    """The folder of each module in Go's module cache; raises ConsoleError if a download or a checksum fails.

    The go.mod and go.sum in the folder `sums` verify the modules; without it, each module has its own checksum.
    """
    queries = dict.fromkeys(module.query for module in modules)
    with tempfile.TemporaryDirectory() as folder:
        if sums is None:
            write_text(Path(folder) / "go.mod", f"module definitions\n\ngo {'.'.join(map(str, GO))}\n")
            write_text(Path(folder) / "go.sum", "".join(dict.fromkeys(module.go_sum for module in modules)))
        done = go.output("mod", "download", "-json", *queries, folder=sums or Path(folder))
    answers: dict[str, dict[str, Any]] = {}
    rest = done.stdout.strip()
    while rest:  # concatenated JSON objects
        answer, end = json.JSONDecoder().raw_decode(rest)
        answers[f"{answer['Path']}@{answer['Version']}"] = answer
        rest = rest[end:].lstrip()
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


def _keep(pin: Pin, content: bytes, cache: Path) -> None:
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
_ANNOTATION: Final = "gpu-tenancy.dev/sha256"  # the checksum of the file of an installed definition


def install(cluster: Cluster, files: Mapping[Pin, Path], cache: Path, report: Report) -> bool:
    """Installs missing definitions and waits for all; returns whether any was missing, or raises ConsoleError."""
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
    """Each definition of `fetch` as it is installed: reduced, with the checksum of its file."""

    def one(pin: Pin) -> Manifest:
        definition = reduced(pin, files[pin], cache)
        metadata = map_at(definition, "metadata")
        annotations: Json = {**map_at(metadata, "annotations"), _ANNOTATION: pin.sha256}
        return {**definition, "metadata": {**metadata, "annotations": annotations}}

    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(one, files))


_PREFIX: Final = "/registry/apiextensions.k8s.io/customresourcedefinitions/"
_PUT: Final = "/v3/kv/put"  # etcd's API over HTTP: https://etcd.io/docs/v3.6/dev-guide/api_grpc_gateway/.
_ANSWERS_WITHIN: Final = 10.0
_CONDITIONS: Final = (
    ("NamesAccepted", "NoConflicts", "no conflicts found"),
    ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
)


def stored(definition: Manifest) -> Manifest:
    """A definition as an API server stores it when it is served; its controllers would change nothing about it."""
    spec, now = map_at(definition, "spec"), f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    kind = text_at(spec, "names", "kind")
    names: Json = {"singular": kind.lower(), "listKind": f"{kind}List", **map_at(spec, "names")}
    conditions: Json = [
        {"type": each, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now}
        for each, reason, message in _CONDITIONS
    ]
    versions: Json = [text_at(one, "name") for one in maps_at(spec, "versions") if one.get("storage")]
    metadata: Json = {
        **map_at(definition, "metadata"),
        "uid": str(uuid.uuid4()),
        "generation": 1,
        "creationTimestamp": now,
    }
    return {
        **definition,
        "metadata": metadata,
        "spec": {**spec, "names": names, "conversion": {"strategy": "None"}},
        "status": {"conditions": conditions, "acceptedNames": names, "storedVersions": versions},
    }


@dataclass(frozen=True, slots=True)
class Etcd:
    """An etcd on which no API server runs yet; `trust` has the certificate of a client."""

    host: str
    port: int
    trust: ssl.SSLContext

    def answers(self) -> bool:
        """Whether it has started."""
        try:
            return self._status("GET", "/health") == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False

    def store(self, definitions: Iterable[Manifest]) -> None:
        """Writes definitions, as `annotated` returns them; raises ConsoleError if etcd rejects one."""
        for definition in definitions:
            name = text_at(definition, "metadata", "name")
            body = {"key": base64_of(f"{_PREFIX}{name}"), "value": base64_of(json.dumps(stored(definition)))}
            if (status := self._status("POST", _PUT, json.dumps(body))) != http.HTTPStatus.OK:
                raise ConsoleError(f"etcd: {name} cannot be stored: it answers with {status}", "run the command again")

    def _status(self, method: str, path: str, body: str | None = None) -> int:
        within = patient(_ANSWERS_WITHIN)
        with closing(http.client.HTTPSConnection(self.host, self.port, context=self.trust, timeout=within)) as one:
            one.request(method, path, body)
            return one.getresponse().status


_FORM: Final = 1  # version of the copies; increase it if other fields are left out
# Fields of a schema whose keys are names, not fields of schemas.
_BY_NAME: Final = frozenset({"properties", "patternProperties", "definitions"})


def reduced(pin: Pin, file: Path, cache: Path) -> Manifest:
    """A definition without descriptions, status and conversion.

    The API server encodes, compares and validates a definition a dozen times until it is served. Conversion needs the
    operator's webhook, which is not installed yet; objects are stored without conversion. The cache has a copy in JSON,
    because reading YAML takes seconds for all operators.
    """
    copy = cache / "definitions" / f"reduced-{_FORM}" / f"{pin.sha256}.json"
    with suppress(OSError, ValueError):
        return cast("Manifest", json.loads(copy.read_bytes()))
    definition = read_table(file)
    definition.pop("status", None)
    definition["spec"].pop("conversion", None)
    for version in definition["spec"]["versions"]:
        version["schema"] = without_descriptions(version["schema"])
    unfinished = copy.with_suffix(f".{os.getpid()}")  # another process may write the same copy
    write_text(unfinished, json.dumps(definition, separators=(",", ":")))
    unfinished.replace(copy)
    return definition


def without_descriptions(schema: Any) -> Any:
    """A schema, or a part of one, without descriptions."""
    if isinstance(schema, list):
        return [without_descriptions(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, Mapping):
        return schema
    return {
        field: {name: without_descriptions(one) for name, one in value.items()}
        if field in _BY_NAME
        else without_descriptions(value)
        for field, value in cast("Mapping[str, Any]", schema).items()
        if field != "description"
    }
