"""The people for whom pages are written: each has a folder, programs on the PATH, and the rights that the pages give.

| who | folder | `tenancy` | kubeconfig |
|---|---|---|---|
| newcomer | a fresh clone | not on the PATH; `make` installs it into `.venv/bin` | none |
| engineer | the same clone | that one, on the PATH, with the SDKs of all clouds | none |
| admin | the same clone | the same | the administrator's of the embedded platform |
| user | an empty folder | of the built wheel | none |
| researcher, lead, auditor | the same | of the built wheel | what `tenancy access kubeconfig` writes for them |
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Final

import platformdirs
from cost_month import use
from kubelet import kubelet
from prometheus_tool import recorded
from repository import ROOT
from screens import COLUMNS
from starts import GUARD

from gpu_tenancy.base.json import text_at
from gpu_tenancy.base.progress import PATIENCE, Report, patient
from gpu_tenancy.cost.statement import Period
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.model.observability.expressions import RECORDED_EVERY

CLONED: Final = frozenset({"newcomer", "engineer", "admin"})
# Identities in the stack `local`.
IDENTITIES: Final[Mapping[str, tuple[str, ...]]] = {
    "researcher": ("ml-research", "--as", "group:ml-research"),
    "lead": ("ml-research", "--as", "user:rosa"),
    "auditor": ("ml-research", "--as", "group:security"),
}
ON_PLATFORM: Final = frozenset({"admin", *IDENTITIES})  # readers with a kubeconfig of the platform of `make up`
_DROPPED: Final = ("GPU_TENANCY_", "KUBE", "MAKE", "MFLAGS", "PULUMI_", "PYTEST", "PYTHON", "VIRTUAL_ENV", "XDG_")
"""Prefixes of variables that would tell a program of this run; proxies and certificates of the machine stay."""
_SAVED: Final = ".saved"


@dataclass(frozen=True, slots=True)
class Ran:
    """A block's standard output and standard error as a terminal shows them."""

    code: int
    output: str


@dataclass
class People:
    """The folders of all readers, for all pages; created when first needed."""

    home: Path
    report: Report
    _made: dict[str, Path] = field(default_factory=dict[str, Path])
    _up: Ran | None = None
    _served: ExitStack = field(default_factory=ExitStack)

    def run(self, who: str, command: str) -> Ran:
        """Runs a block by bash in a person's folder; folder and variables stay for the next block, as in a terminal."""
        place = self.folder(who)
        saved = self.home / f"{who}{_SAVED}"
        before = f". {saved}\n" if saved.is_file() else ""
        text = f"{before}trap 'code=$?; {{ export -p; echo cd \"$PWD\"; }} > {saved}; exit $code' EXIT\n{command}"
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", text],
            cwd=place,
            env=self.environment(who),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=GUARD,
        )
        return Ran(done.returncode, done.stdout)

    def turn(self) -> None:
        """Ends all terminals and empties their folders, before another page."""
        for saved in self.home.glob(f"*{_SAVED}"):
            saved.unlink()
        if "clone" in self._made:
            _git(self._made["clone"], "reset", "--quiet", "--hard", "start")
            _git(self._made["clone"], "clean", "--quiet", "--force", "-dx", "-e", ".venv", "-e", ".uv")
        shutil.rmtree(self.home / "empty", ignore_errors=True)

    def folder(self, who: str) -> Path:
        if who in CLONED:
            return self.clone()
        empty = self.home / "empty"
        empty.mkdir(exist_ok=True)
        return empty

    def environment(self, who: str) -> dict[str, str]:
        """The variables of a person: only caches of programs and packages are the machine's."""
        programs = [] if who == "newcomer" else [str(self._programs(who))]
        own = {
            "HOME": str(self.home),
            "PATH": os.pathsep.join([*programs, *_system_path()]),
            "COLUMNS": str(COLUMNS),
            "LANG": "C.UTF-8",
            "XDG_CACHE_HOME": str(platformdirs.user_cache_path()),
            "XDG_STATE_HOME": str(self.home / "state"),
            "GIT_AUTHOR_NAME": "n",
            "GIT_AUTHOR_EMAIL": "n@example.com",
            "GIT_COMMITTER_NAME": "n",
            "GIT_COMMITTER_EMAIL": "n@example.com",
            "UV_PYTHON": sys.executable,
            "GOMODCACHE": os.environ.get("GOMODCACHE") or str(Path.home() / "go" / "pkg" / "mod"),
        }
        kept = {PATIENCE: os.environ[PATIENCE]}
        kept |= {name: value for name, value in os.environ.items() if not name.startswith(_DROPPED)}
        return {**kept, **own, **({"KUBECONFIG": str(self.kubeconfig(who))} if who in ON_PLATFORM else {})}

    def clone(self) -> Path:
        """A clone of the working tree, with uncommitted changes, whose branch `main` is on the remote."""
        if "clone" not in self._made:
            place = self._made["clone"] = self.home / "gpu-tenancy"
            _git(self.home, "clone", "--quiet", "--no-local", str(ROOT), str(place))
            listed = _git(ROOT, "ls-files", "--modified", "--others", "--exclude-standard", "-z")
            for name in filter(None, listed.split("\0")):
                (place / name).unlink(missing_ok=True)
                if (ROOT / name).is_file():
                    (place / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(ROOT / name, place / name)
            _git(place, "checkout", "--quiet", "-B", "main")
            _git(place, "add", "--all")
            _git(place, "commit", "--quiet", "--allow-empty", "--message", "As it is now")
            _git(place, "tag", "start")
            _git(place, "update-ref", "refs/remotes/origin/main", "HEAD")
        return self._made["clone"]

    def up(self) -> Ran:
        """The output of `make up`; it runs once for all pages, and again for the next page if it failed."""
        if self._up is None or self._up.code != 0:
            self._up = self.run("newcomer", "make up")
            assert self._up.code == 0, self._up.output
            self._write_logs()
        return self._up

    def _write_logs(self) -> None:
        """Writes logs for pods on the platform: simulated nodes write none."""
        platform = Platform(self.home / "state" / "gpu-tenancy" / "embedded")
        cluster = self._served.enter_context(platform.cluster())
        names = [text_at(node, "metadata", "name") for node in cluster.list("v1", "Node", metadata_only=True)]
        self._served.enter_context(kubelet(platform, cluster, names))

    def prometheus(self) -> None:
        """Prometheus at its usual port, with last month of a team: jobs that hang, and one that waits for GPUs."""
        if "prometheus" in self._made:
            return
        folder = self._made["prometheus"] = self.home / "prometheus"
        folder.mkdir()
        began = Period.of(None, datetime.now(UTC)).start + 36_000
        used = 'gpu_tenancy:gpus_used{cluster_queue="ml-research",flavor="a100",resource="nvidia.com/gpu"}'
        samples = chain(
            (f"{used} 32 {began + at:.0f}" for at in range(0, 20 * 3600, RECORDED_EVERY)),
            *(use("ml-research", began, f"hangs-{number}", [(1, 90), (9, 0)]) for number in range(4)),
            use("ml-research", began + 3600, "waits", [(10, 90)]),
        )
        self._served.enter_context(recorded(samples, folder, port=9090))

    def down(self) -> None:
        self._served.close()
        if self._up is not None:
            self.run("newcomer", ".venv/bin/tenancy local down")

    def kubeconfig(self, who: str) -> Path:
        self.up()
        if who == "admin":
            return self.home / "state" / "gpu-tenancy" / "embedded" / "kubeconfig"
        file = self.home / f"kubeconfig-{who}"
        if not file.is_file():
            words = (*IDENTITIES[who], "--embedded", "--out", str(file))
            done = self.run("engineer", f"tenancy access kubeconfig {' '.join(words)}")
            assert done.code == 0, done.output
        return file

    def _programs(self, who: str) -> Path:
        """The folder with the `tenancy` of a person."""
        if who in CLONED:
            place = self.clone()
            if not (place / ".venv" / "ready-clouds").is_file():
                self._succeed(["make", "ready-clouds"], place, self.environment("newcomer"))
            return place / ".venv" / "bin"
        if "wheel" not in self._made:
            self._made["wheel"] = installed_wheel(self.home / "wheel")
        return self._made["wheel"] / "bin"

    @staticmethod
    def _succeed(words: list[str], folder: Path, environment: Mapping[str, str]) -> None:
        done = subprocess.run(
            words, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=GUARD
        )
        assert done.returncode == 0, done.stdout + done.stderr


def installed_wheel(folder: Path) -> Path:
    """An environment with the wheel of this repository and its dependencies, at the versions of the lock."""
    place = folder / "environment"
    uv = (sys.executable, "-m", "uv", "--quiet")
    sync = ("sync", "--frozen", "--no-dev", "--no-install-project", "--python", sys.executable)
    for words in (
        (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")),
        (*uv, *sync),
    ):
        variables = {**os.environ, "UV_PROJECT_ENVIRONMENT": str(place)}
        subprocess.run(words, cwd=ROOT, env=variables, check=True, capture_output=True, timeout=GUARD)
    (wheel,) = (folder / "dist").glob("*.whl")
    install = ("--offline", "pip", "install", "--no-deps", "--python", str(place / "bin" / "python"), str(wheel))
    subprocess.run((*uv, *install), cwd=ROOT, check=True, capture_output=True, timeout=GUARD)
    return place


def _git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=n", "-c", "user.email=n@example.com", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


def _system_path() -> list[str]:
    """The PATH without environments of Python: programs of the system, kubectl, uv."""
    return [
        folder
        for folder in os.environ["PATH"].split(os.pathsep)
        if folder and not (Path(folder) / "tenancy").is_file() and not (Path(folder) / "activate").is_file()
    ]


def within(seconds: float, attempt: Callable[[], Ran], code: int) -> Ran:
    """Repeats a block until it has its exit code, for at most `seconds`."""
    deadline = time.monotonic() + patient(seconds)
    while (ran := attempt()).code != code and time.monotonic() < deadline:
        time.sleep(1)
    return ran
