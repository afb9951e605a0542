"""The platform's programs: from `KUBEBUILDER_ASSETS`, else official downloads, else our own build."""

import hashlib
import http.client
import json
import os
import platform
import shutil
import subprocess
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, StringConstraints

from gpu_tenancy.base.errors import ConsoleError, naming
from gpu_tenancy.base.progress import Report, measured
from gpu_tenancy.embedded.building import build, built
from gpu_tenancy.embedded.parts import PARTS
from gpu_tenancy.embedded.processes import alone
from gpu_tenancy.model.yaml import read_table

# Environment variable: a folder with programs, as from `setup-envtest`; they are used first.
ASSETS: Final = "KUBEBUILDER_ASSETS"


@dataclass(frozen=True)
class Programs:
    """The programs: the first of `folders` that has a part is used; `built` has every part, or is None if not built."""

    folders: tuple[Path, ...] = ()
    built: Path | None = None

    def command(self, part: str) -> list[str] | None:
        """The command for a part, such as `kube-apiserver`; None if it has no program."""
        for folder in self.folders:
            if (folder / part).is_file():
                return [str(folder / part)]
        return [str(self.built), part] if self.built else None

    @property
    def complete(self) -> bool:
        """Whether every part has a program."""
        return all(self.command(part) for part in PARTS)


def present_programs(cache: Path) -> Programs:
    """The programs on this machine, maybe not all; raises ConsoleError if `KUBEBUILDER_ASSETS` is not a folder."""
    assets = os.environ.get(ASSETS)
    if assets and not Path(assets).is_dir():
        raise ConsoleError(f"{ASSETS}: {assets} is not a folder", "set it to a folder from setup-envtest, or unset it")
    folders = (Path(assets),) if assets else ()
    if (program := built(cache)).is_file():
        return Programs(folders, program)
    if os.environ.get(REGISTRY) != "off":
        folders += (read_official().folder(cache),)
    return Programs(folders)


def find_programs(cache: Path, report: Report) -> Programs:
    """The programs, downloaded or built if missing; raises ConsoleError as `present_programs`, or if a build fails."""
    if (present := present_programs(cache)).complete:
        return present
    with alone(cache / "programs.lock", report, "downloading or building the control plane"):
        if (present := present_programs(cache)).complete:
            return present
        try:
            download(read_official(), cache, report)
        except UnavailableError as reason:
            report(f"official programs are not available ({reason}); building from source")
            build(cache, report)
        return present_programs(cache)


_TABLE: Final = Path(__file__).parent / "official.yaml"
REGISTRY: Final = "GPU_TENANCY_REGISTRY"
"""Environment variable: URL of a registry mirror, such as `https://mirror.example.com`, or `off` to always build."""

_MACHINES: Final = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
_INDEXES: Final = "application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json"
_MANIFESTS: Final = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"
# Seconds for a connection or one read, short because a network that drops packets must not delay the build.
_TIMEOUT: Final = 10

_BLOCK: Final = 1 << 20


class UnavailableError(Exception):
    """The official programs are not available; the message is the reason."""


class Program(BaseModel):
    """One program of an image."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    image: str
    version: str  # for readers only
    digest: Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]  # of the image's index
    file: str  # its path in the image
    source: str  # where the digest is published


class Official(BaseModel):
    """The registry, and its programs by the names of the platform's parts.

    Each program is one file of one image, whose index digest is pinned. Index, manifest and layer are verified by their
    digests, so that no registry, mirror or proxy can replace a program. The protocol is the registry API of the Open
    Container Initiative: https://github.com/opencontainers/distribution-spec
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    registry: str
    programs: Mapping[str, Program]

    def folder(self, cache: Path) -> Path:
        """The folder for downloaded programs; its name changes with their digests."""
        digests = "".join(sorted(program.digest for program in self.programs.values()))
        return cache / f"official-{hashlib.sha256(f'{platform.machine()} {digests}'.encode()).hexdigest()[:12]}"


@cache
def read_official() -> Official:
    """The programs in `official.yaml`."""
    return Official.model_validate(read_table(_TABLE))


def download(official: Official, cache: Path, report: Report) -> Path:
    """Downloads every missing program, and returns their folder; raises UnavailableError if that is not possible."""
    registry = os.environ.get(REGISTRY) or official.registry
    if registry == "off":
        raise UnavailableError(f"{REGISTRY}=off")
    machine = _MACHINES.get(platform.machine())
    if platform.system() != "Linux" or machine is None:
        raise UnavailableError(f"unsupported platform {platform.system()} {platform.machine()}")
    folder = official.folder(cache)
    missing = {name: program for name, program in official.programs.items() if not (folder / name).is_file()}
    try:
        layers = {name: _layers(registry, program, machine) for name, program in missing.items()}
        total = sum(sizes[-1][1] for sizes in layers.values()) >> 20
        folder.mkdir(parents=True, exist_ok=True)
        with (
            naming(folder),
            tempfile.TemporaryDirectory(dir=folder) as unfinished,
            measured(report, "downloading the control plane's official programs", total, "MiB") as advance,
        ):
            done = 0  # bytes of all layers

            def count(block: bytes) -> None:
                nonlocal done
                done += len(block)
                advance(done >> 20)

            for name, program in missing.items():
                _take(registry, program, layers[name], Path(unfinished) / name, count)
                (Path(unfinished) / name).replace(folder / name)
    except urllib.error.HTTPError as error:
        raise UnavailableError(f"{error.url}: HTTP {error.code} {error.reason}") from error
    except _UNUSABLE as error:
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        raise UnavailableError(f"{registry}: {cause or type(error).__name__}") from error
    return folder


# No answer, or an answer that is not an image. Not a full disk, because a build needs even more space.
_UNUSABLE: Final = (
    urllib.error.URLError,
    http.client.HTTPException,
    TimeoutError,
    ConnectionError,
    tarfile.TarError,
    ValueError,
    KeyError,
)


def _layers(registry: str, program: Program, machine: str) -> list[tuple[str, int]]:
    """Digest and size of each layer of an image for a machine, the lowest layer first."""
    index = _manifest(registry, program.image, program.digest, _INDEXES)
    images = {
        (one.get("platform", {}).get("os"), one.get("platform", {}).get("architecture")): one["digest"]
        for one in reversed(index.get("manifests", ()))
    }
    digest = images.get(("linux", machine))
    if digest is None:
        raise UnavailableError(f"{registry}/{program.image}:{program.version} has no image for linux/{machine}")
    manifest = _manifest(registry, program.image, digest, _MANIFESTS)
    layers = [(layer["digest"], int(layer["size"])) for layer in manifest.get("layers", ())]
    if not layers:
        raise UnavailableError(f"{registry}/{program.image}:{program.version} has no layers")
    return layers


def _manifest(registry: str, image: str, digest: str, accept: str) -> dict[str, Any]:
    with _open(f"{registry}/v2/{image}/manifests/{digest}", accept) as answer:
        content: bytes = answer.read()
    _verify(image, digest, hashlib.sha256(content).hexdigest())
    return json.loads(content)


def _open(address: str, accept: str = "*/*") -> Any:
    if not address.startswith(("https://", "http://127.0.0.1:")):
        raise UnavailableError(f"{address} is not an https URL")
    request = urllib.request.Request(address, headers={"Accept": accept})  # noqa: S310 - the scheme was checked
    return urllib.request.urlopen(request, timeout=_TIMEOUT)  # noqa: S310 - as above


def _verify(image: str, digest: str, actual: str) -> None:
    if f"sha256:{actual}" != digest:
        raise UnavailableError(f"{image}: digest mismatch: expected {digest}, got sha256:{actual}")


def _take(
    registry: str, program: Program, layers: list[tuple[str, int]], into: Path, count: Callable[[bytes], None]
) -> None:
    """Extracts the program's file from the uppermost layer that has it, because builds add programs last."""
    for digest, _ in reversed(layers):
        with tempfile.TemporaryFile(dir=into.parent) as layer:
            checksum = hashlib.sha256()
            with _open(f"{registry}/v2/{program.image}/blobs/{digest}") as answer:
                while block := answer.read(_BLOCK):
                    checksum.update(block)
                    layer.write(block)
                    count(block)
            _verify(program.image, digest, checksum.hexdigest())
            layer.seek(0)
            with tarfile.open(fileobj=layer) as archive:
                names = (member for member in archive if member.name.removeprefix("./").lstrip("/") == program.file)
                content = next((archive.extractfile(member) for member in names if member.isfile()), None)
                if content is not None:
                    with into.open("wb") as file:
                        shutil.copyfileobj(content, file, _BLOCK)
                    into.chmod(0o755)
                    break
    else:
        raise UnavailableError(f"{registry}/{program.image}:{program.version} has no file {program.file}")
    _try_out(into)


def _try_out(program: Path) -> None:
    """Runs the program once, because an image can be incompatible with this machine."""
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"{program.name} does not run on this machine: {error}") from error
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        reason = lines[-1] if lines else "no output"
        raise UnavailableError(f"{program.name} --version failed with exit code {done.returncode}: {reason}")
