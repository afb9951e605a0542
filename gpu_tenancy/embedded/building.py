"""Builds programs from pinned Go modules, if their official programs are not available.

The control plane and the operators' controllers are in one module graph, so that shared packages are compiled once.
"""

import hashlib
import platform
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, TextIO

from gpu_tenancy.base.errors import ConsoleError, naming
from gpu_tenancy.base.progress import Report, measured
from gpu_tenancy.embedded.processes import tail
from gpu_tenancy.embedded.toolchain import Go, find_go, trusting

CONTROL_PLANE: Final = "controlplane"
"""The source whose main program is the control plane."""
SOURCE: Final = Path(__file__).parent / CONTROL_PLANE
KUBERNETES: Final = "v1.36.3"
"""The version that the API server reports; a test compares it with go.mod."""

_UNREADABLE: Final = re.compile(r": (?P<module>\S+@v\S+): reading \S+: (?P<why>\d{3} .+)")
"""Go's line about a module that the module proxy refuses; it is repeated for each file that imports the module."""
_PULUMI: Final = "github.com/pulumi/pulumi/sdk/v3"
_FLAGS: Final = (
    "-trimpath",
    "-gcflags=all=-dwarf=false",
    *(
        f"-gcflags={packages}=-l -dwarf=false"
        for packages in ("k8s.io/kubernetes/...", "k8s.io/client-go/...", "github.com/pulumi/pulumi-kubernetes/sdk/...")
    ),
)
"""For a faster build without debug tables, and without inlining in controllers, typed clients and Pulumi's SDK of
Kubernetes in Go, whose speed does not matter. Without any inlining the build is a third smaller, but the API server
takes 20% more CPU."""


def source_folder(source: str) -> Path:
    """The folder with the go.mod of a source."""
    return Path(__file__).parent / source


def built(cache: Path, program: str = CONTROL_PLANE, source: str = CONTROL_PLANE) -> Path:
    """The path of a built program, which depends on its source.

    Everything else in the cache was downloaded.
    """
    return cache / "programs" / f"{source}-{_fingerprint(source_folder(source))}" / program


def _fingerprint(folder: Path) -> str:
    digest = hashlib.sha256(f"{platform.system()} {platform.machine()} {KUBERNETES}".encode())
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(str(file.relative_to(folder)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]


def needed_go(source: str = CONTROL_PLANE) -> tuple[int, ...]:
    """The minimum Go version of a source, from its go.mod."""
    file = source_folder(source) / "go.mod"
    match = re.search(r"^go (\d+)\.(\d+)(?:\.(\d+))?$", file.read_text(encoding="utf-8"), re.MULTILINE)
    if not match:
        raise ConsoleError(f"{file}: no Go version", "add a line such as: go 1.26.0")
    return tuple(int(part or 0) for part in match.groups())


def required_version(source: str, module: str) -> str:
    """The version of a module that the go.mod of a source requires.

    Raises:
        ConsoleError: it does not require the module.
    """
    file = source_folder(source) / "go.mod"
    match = re.search(rf"^\t{re.escape(module)} (v\S+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    if not match:
        raise ConsoleError(f"{file}: module {module} is missing", f"run `go get {module}@VERSION` there")
    return match[1]


def build(
    cache: Path,
    report: Report,
    packages: Mapping[str, str] = MappingProxyType({CONTROL_PLANE: "."}),
    *,
    source: str = CONTROL_PLANE,
    what: str = f"Kubernetes {KUBERNETES}, etcd and kwok",
) -> None:
    """Builds programs into the cache.

    The next build continues an interrupted one, from the compiler's own cache.

    Args:
        cache: folder for the programs.
        report: receives lines of progress.
        packages: the Go package of each program.
        source: name of the folder with the go.mod.
        what: title of the programs.

    Raises:
        ConsoleError: there is no compiler, or the build failed.
    """
    go, folder = find_go(needed_go(source), cache, report), built(cache, source=source).parent
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "build.log"
    start = time.monotonic()
    report(f"building {what} from Go modules (first run only)")
    with (
        naming(folder),
        tempfile.TemporaryDirectory(dir=folder) as unfinished,
        log.open("w", encoding="utf-8") as output,
    ):
        target = _Target(Path(unfinished), output, _linker_flags(source))
        if not _compile(go, source_folder(source), tuple(packages.values()), target, report):
            output.flush()
            raise _failure(log, what, source)
        for program, package in packages.items():
            (Path(unfinished) / _executable(package)).replace(folder / program)
    log.unlink()
    report(f"built in {time.monotonic() - start:.0f} s")


@dataclass(frozen=True, slots=True)
class _Target:
    """Where a build writes its programs and the compiler's output, and flags of the linker."""

    folder: Path
    output: TextIO
    linker: str


def _compile(go: Go, folder: Path, packages: Sequence[str], target: _Target, report: Report) -> bool:
    """Compiles and links packages with one command, so that what several need is compiled once.

    Returns:
        False if this fails, with the reason in the output.
    """
    template = "{{if .Stale}}{{.ImportPath}}{{end}}"
    listed = go.output("list", "-deps", *_FLAGS, "-f", template, *packages, folder=folder)
    target.output.write(listed.stderr)
    if listed.returncode:
        return False
    stale, done = set(listed.stdout.split()), 0
    arguments = ("build", "-v", *_FLAGS, "-ldflags", target.linker, "-o", f"{target.folder}/", *packages)
    with measured(report, "compiling", len(stale), "packages") as advance, go.start(*arguments, folder=folder) as run:
        for line in run.stdout or ():  # compiled packages and errors
            target.output.write(line)
            done += line.strip() in stale
            advance(done)
    if run.returncode < 0:
        raise ConsoleError(
            f"the build was killed by signal {-run.returncode}", "run the same command again to continue it"
        )
    return run.returncode == 0


def _executable(package: str) -> str:
    """The file name that `go build` gives to a package: its last element, without a major version."""
    parts = [part for part in package.split("/") if not re.fullmatch(r"v[2-9]\d*", part)]
    return CONTROL_PLANE if package == "." else parts[-1]


def _linker_flags(source: str) -> str:
    """Flags that leave out symbols, and set the version that the programs report."""
    if source == "pulumi":  # Pulumi's Automation API refuses a CLI without a version
        stamps = {f"{_PULUMI}/go/common/version.Version": required_version(source, _PULUMI)}
    else:
        major, minor, _ = KUBERNETES.removeprefix("v").split(".")
        versions = {"gitVersion": KUBERNETES, "gitMajor": major, "gitMinor": minor}
        stamps = {f"k8s.io/component-base/version.{name}": value for name, value in versions.items()}
    return " ".join(["-s", "-w", *(f"-X {name}={value}" for name, value in stamps.items())])


def _failure(log: Path, what: str, source: str) -> ConsoleError:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    if full := next((line.strip() for line in lines if "no space left on device" in line), None):
        return ConsoleError(f"disk full: {full}", "free 4 GB, then run the same command again")
    missing = {(found["module"], found["why"]) for line in lines if (found := _UNREADABLE.search(line))}
    why = "; ".join(f"Go module {module} cannot be downloaded: {answer}" for module, answer in sorted(missing))
    instead = "set KUBEBUILDER_ASSETS or GPU_TENANCY_CONTROLLERS to a folder with programs"
    if source.startswith("pulumi"):
        instead = "set GOPROXY to a module proxy, or install the Pulumi CLI: https://www.pulumi.com/docs/install/"
    detail = why or f"Last log lines:{chr(10)}{tail(log, 15)}"
    return ConsoleError(
        f"building {what} failed. {detail}",
        trusting(detail, f"see the full log in {log}, or {instead}"),
    )
