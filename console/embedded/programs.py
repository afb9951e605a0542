"""The programs of the control plane: those of `KUBEBUILDER_ASSETS`, else our own build."""

import fcntl
import hashlib
import os
import platform
import re
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Final

from console.embedded.toolchain import Report, find_go
from console.errors import ConsoleError

SOURCE: Final = Path(__file__).parent / "controlplane"
KUBERNETES: Final = "v1.36.3"
"""What the API server calls itself; a test holds it against go.mod."""

_STAMP: Final = "k8s.io/component-base/version"


@dataclass(frozen=True)
class Programs:
    """Where the control plane's programs are.

    Attributes:
        built: our own program, which holds every part.
        assets: folder of `KUBEBUILDER_ASSETS`, whose programs go first.
    """

    built: Path
    assets: Path | None = None

    def command(self, part: str) -> list[str]:
        """How to start a part, such as `kube-apiserver`: its own program, or ours with its name."""
        own = self.assets / part if self.assets else None
        return [str(own)] if own and own.is_file() else [str(self.built), part]


def find_programs(cache: Path, report: Report) -> Programs:
    """The programs, built into the cache where they are not there yet.

    Raises:
        ConsoleError: there is no compiler, or the build fails.
    """
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets and not Path(assets).is_dir():
        raise ConsoleError(f"KUBEBUILDER_ASSETS={assets} is no folder", "name one that setup-envtest made, or unset it")
    built = cache / f"controlplane-{_fingerprint()}" / "controlplane"
    if not built.is_file():
        with _alone(cache / "controlplane.lock"):
            if not built.is_file():  # Another run may have built it while this one waited.
                _build(built, cache, report)
    return Programs(built, Path(assets) if assets else None)


def _fingerprint() -> str:
    digest = hashlib.sha256(f"{platform.system()} {platform.machine()} {KUBERNETES}".encode())
    for file in sorted(SOURCE.iterdir()):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]


@contextmanager
def _alone(lock: Path) -> Generator[None]:
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def needed_go() -> tuple[int, ...]:
    """The least Go that the module builds with, from its go.mod."""
    match = re.search(r"^go (\d+)\.(\d+)(?:\.(\d+))?$", (SOURCE / "go.mod").read_text(encoding="utf-8"), re.MULTILINE)
    if not match:
        raise ConsoleError(f"{SOURCE / 'go.mod'} names no Go version", "write a line such as: go 1.26.0")
    return tuple(int(part or 0) for part in match.groups())


def _build(built: Path, cache: Path, report: Report) -> None:
    go = find_go(needed_go(), cache, report)
    built.parent.mkdir(parents=True, exist_ok=True)
    log = built.parent / "build.log"
    major, minor = KUBERNETES.removeprefix("v").split(".")[:2]
    stamps = {"gitVersion": KUBERNETES, "gitMajor": major, "gitMinor": minor}
    flags = " ".join(["-s", "-w", *(f"-X {_STAMP}.{name}={value}" for name, value in stamps.items())])
    with tempfile.TemporaryDirectory(dir=built.parent) as folder, _progress(report):
        unfinished = Path(folder) / "controlplane"
        code = go.run("build", "-trimpath", "-ldflags", flags, "-o", str(unfinished), ".", folder=SOURCE, log=log)
        if code:
            words = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            raise ConsoleError(
                f"the control plane could not be built:\n{words}",
                f"the whole log is {log}; KUBEBUILDER_ASSETS names programs that are there already",
            )
        unfinished.replace(built)
    log.unlink()


@contextmanager
def _progress(report: Report) -> Generator[None]:
    """Says every quarter of a minute that the build goes on: Go itself says nothing for minutes."""
    done, began = Event(), time.monotonic()
    report(f"building Kubernetes {KUBERNETES} from its pinned Go module: once, five to ten minutes on two cores")

    def tell() -> None:
        while not done.wait(15):
            report(f"still building, {int(time.monotonic() - began)} s")

    teller = Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()
    report(f"built in {int(time.monotonic() - began)} s")
