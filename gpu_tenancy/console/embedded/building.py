"""Builds the control plane from pinned Go modules, if its official programs are not available."""

import hashlib
import platform
import re
import tempfile
import time
from pathlib import Path
from typing import Final, TextIO

from gpu_tenancy.console.embedded.processes import tail
from gpu_tenancy.console.embedded.toolchain import Go, find_go
from gpu_tenancy.console.errors import ConsoleError
from gpu_tenancy.console.progress import Report, measured

SOURCE: Final = Path(__file__).parent / "controlplane"
KUBERNETES: Final = "v1.36.3"
"""The version that the API server reports; a test compares it with go.mod."""

_STAMP: Final = "k8s.io/component-base/version"
_FLAGS: Final = (
    "-trimpath",
    "-gcflags=all=-dwarf=false",
    *(f"-gcflags={packages}=-l -dwarf=false" for packages in ("k8s.io/kubernetes/...", "k8s.io/client-go/...")),
)
"""For a faster build without debug tables, and without inlining in controllers and typed clients, whose speed does not
matter. Without any inlining the build is a third smaller, but the API server takes 20% more CPU."""


def built(cache: Path) -> Path:
    """The path of the built program, which depends on its source."""
    return cache / f"controlplane-{_fingerprint()}" / "controlplane"


def _fingerprint() -> str:
    digest = hashlib.sha256(f"{platform.system()} {platform.machine()} {KUBERNETES}".encode())
    for file in sorted(SOURCE.iterdir()):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]


def needed_go() -> tuple[int, ...]:
    """The minimum Go version of the module, from its go.mod."""
    match = re.search(r"^go (\d+)\.(\d+)(?:\.(\d+))?$", (SOURCE / "go.mod").read_text(encoding="utf-8"), re.MULTILINE)
    if not match:
        raise ConsoleError(f"{SOURCE / 'go.mod'}: no Go version", "add a line such as: go 1.26.0")
    return tuple(int(part or 0) for part in match.groups())


def build(cache: Path, report: Report) -> Path:
    """Builds the program into the cache; returns its path.

    The next build continues an interrupted one, from the compiler's own cache.

    Raises:
        ConsoleError: there is no compiler, or the build failed.
    """
    go, target = find_go(needed_go(), cache, report), built(cache)
    target.parent.mkdir(parents=True, exist_ok=True)
    log = target.parent / "build.log"
    start = time.monotonic()
    report(f"building Kubernetes {KUBERNETES}, etcd and kwok from Go modules (first run only)")
    with tempfile.TemporaryDirectory(dir=target.parent) as folder, log.open("w", encoding="utf-8") as output:
        unfinished = Path(folder) / "controlplane"
        if not _compile(go, unfinished, output, report):
            output.flush()
            raise _failure(log)
        unfinished.replace(target)
    log.unlink()
    report(f"built in {time.monotonic() - start:.0f} s")
    return target


def _compile(go: Go, target: Path, output: TextIO, report: Report) -> bool:
    """Compiles and links the program; False if this fails, with the reason in the log."""
    template = "{{if .Stale}}{{.ImportPath}}{{end}}"
    listed = go.output("list", "-deps", *_FLAGS, "-f", template, ".", folder=SOURCE)
    output.write(listed.stderr)
    if listed.returncode:
        return False
    stale, done = set(listed.stdout.split()), 0
    arguments = ("build", "-v", *_FLAGS, "-ldflags", _linker_flags(), "-o", str(target), ".")
    with measured(report, "compiling", len(stale), "packages") as advance, go.start(*arguments, folder=SOURCE) as run:
        for line in run.stdout or ():  # compiled packages and errors
            output.write(line)
            done += line.strip() in stale
            advance(done)
    if run.returncode < 0:
        raise ConsoleError(
            f"the build was killed by signal {-run.returncode}", "run the same command again to continue it"
        )
    return run.returncode == 0


def _linker_flags() -> str:
    major, minor = KUBERNETES.removeprefix("v").split(".")[:2]
    stamps = {"gitVersion": KUBERNETES, "gitMajor": major, "gitMinor": minor}
    return " ".join(["-s", "-w", *(f"-X {_STAMP}.{name}={value}" for name, value in stamps.items())])


def _failure(log: Path) -> ConsoleError:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    if full := next((line.strip() for line in lines if "no space left on device" in line), None):
        return ConsoleError(f"disk full: {full}", "free 4 GB, then run the same command again")
    return ConsoleError(
        f"building the control plane failed. Last log lines:\n{tail(log, 15)}",
        f"see the full log in {log}, or set KUBEBUILDER_ASSETS to a folder with existing programs",
    )
