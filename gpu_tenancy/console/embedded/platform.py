"""The embedded platform: a real control plane on this machine, with nodes that carry GPUs of which none is real."""

import hashlib
import json
import shutil
import time
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import platformdirs
import yaml

from gpu_tenancy.console.cluster.client import Cluster
from gpu_tenancy.console.embedded.certificates import make_certificates
from gpu_tenancy.console.embedded.credentials import write_client_configs, write_private
from gpu_tenancy.console.embedded.locking import alone
from gpu_tenancy.console.embedded.parts import API_SERVER, ETCD, PARTS, Places, Ports, flags
from gpu_tenancy.console.embedded.processes import Started, free_ports, start, stop, tail, uninterrupted
from gpu_tenancy.console.embedded.programs import Programs, find_programs, present_programs
from gpu_tenancy.console.errors import ConsoleError
from gpu_tenancy.console.progress import Report

_RBAC: Final = Path(__file__).parent / "kwok-rbac.yaml"
READY_WITHIN: Final = 90.0
"""Seconds in which the API server must answer; four are usual."""

_STARTS: Final = 3
"""How often the parts are started, each time on other ports, if another process takes one of their ports."""


class PortTakenError(ConsoleError):
    """A part found its port in use, which was free when it was chosen."""


@dataclass(frozen=True, slots=True)
class PartStatus:
    """Whether a part runs, and as which process."""

    part: str
    pid: int | None

    @property
    def runs(self) -> bool:
        """Whether there is a process."""
        return self.pid is not None


@dataclass(frozen=True, slots=True)
class _Running:
    """What was started, as written to the platform's state."""

    ports: Ports
    parts: dict[str, Started]


class Platform:
    """One embedded platform, in a folder of its own.

    It listens on the loopback only, on ports that were free, and writes no kubeconfig but its own.
    """

    def __init__(self, home: Path | None = None, cache: Path | None = None) -> None:
        """Names its places; nothing is started.

        Args:
            home: folder that holds everything of it; left out, one in the user's state folder.
            cache: folder of what is built and downloaded once.
        """
        self.places = Places(home or platformdirs.user_state_path("gpu-tenancy") / "embedded")
        self.cache = cache or platformdirs.user_cache_path("gpu-tenancy")

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.places.kubeconfig

    def cluster(self) -> Cluster:
        """A client of its API server."""
        return Cluster(self.kubeconfig)

    def status(self) -> tuple[PartStatus, ...]:
        """Each part, in the order in which they need each other."""
        running = self._running()
        alive = {part: started.pid for part, started in running.parts.items() if started.process} if running else {}
        return tuple(PartStatus(part, alive.get(part)) for part in PARTS)

    def carried(self) -> tuple[str, str] | None:
        """The stack that is there and the engine that brought it; None where there is none yet."""
        if not self.places.carried.is_file():
            return None
        stack, engine = json.loads(self.places.carried.read_text(encoding="utf-8"))
        return stack, engine

    def carry(self, stack: str, engine: str) -> None:
        """Notes which stack is there, and by which engine."""
        write_private(self.places.carried, json.dumps([stack, engine]))

    @property
    def prepared(self) -> bool:
        """Whether its programs are on this machine, so that `up` takes seconds and not minutes."""
        return present_programs(self.cache).complete

    def up(self, report: Report) -> None:
        """Starts what does not run, and returns when the API server answers.

        Raises:
            ConsoleError: a program cannot be had, or a part does not come up; what was started is ended again.
        """
        self.places.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._alone(report):
            if all(part.runs for part in self.status()) and self._answers():
                return
            programs = find_programs(self.cache, report)
            self._stop()
            report("starting the control plane")
            make_certificates(self.places)
            self._start(programs, _STARTS)

    def down(self, report: Report = lambda _: None) -> None:
        """Ends every process and removes every file, but what was built and downloaded."""
        if not self.places.home.exists():
            return
        with self._alone(report):
            self._stop()
            shutil.rmtree(self.places.home)

    def _start(self, programs: Programs, attempts: int) -> None:
        running = _Running(Ports(*free_ports(3)), {})
        try:
            self._start_parts(programs, running)
        except BaseException as error:
            with uninterrupted():
                _end(running)
                self.places.state.unlink(missing_ok=True)
            if not isinstance(error, PortTakenError) or attempts == 1:
                raise
            self._start(programs, attempts - 1)

    def _start_parts(self, programs: Programs, running: _Running) -> None:
        def begin(*parts: str) -> None:
            for part in parts:
                command = [*(programs.command(part) or ()), *flags(part, self.places, running.ports)]
                environment = {"KWOK_WORKDIR": str(self.places.home / "kwok")}
                with uninterrupted():
                    running.parts[part] = start(command, self.places.log(part), environment=environment)
                    self._write(running)

        write_client_configs(self.places, running.ports)
        begin(ETCD, API_SERVER)
        self._until_ready(running)
        self._let_nodes_be_managed()
        begin(*(part for part in PARTS if part not in {ETCD, API_SERVER}))
        self._until_steady(running)

    def _until_ready(self, running: _Running) -> None:
        deadline = time.monotonic() + READY_WITHIN
        while not self._answers():
            self._none_ended(running)
            if time.monotonic() > deadline:
                self._refuse(API_SERVER, f"did not answer within {READY_WITHIN:g} s")
            time.sleep(0.1)

    def _until_steady(self, running: _Running) -> None:
        """A part with a wrong flag ends within moments."""
        cluster = self.cluster()
        deadline = time.monotonic() + READY_WITHIN
        # The controllers are at work once they have given a new namespace its account.
        while cluster.get("v1", "ServiceAccount", "default", "default") is None:
            self._none_ended(running)
            if time.monotonic() > deadline:
                self._refuse(PARTS[2], f"did not begin to work within {READY_WITHIN:g} s")
            time.sleep(0.1)
        self._none_ended(running)

    def _none_ended(self, running: _Running) -> None:
        for part, started in running.parts.items():
            if started.process is None:
                self._refuse(part, "ended")

    def _refuse(self, part: str, what: str) -> None:
        log = self.places.log(part)
        last = tail(log)
        error = PortTakenError if "address already in use" in last else ConsoleError
        raise error(f"{part} {what}. Last log lines:\n{last}", f"the whole log is {log}")

    def _answers(self) -> bool:
        if not self.kubeconfig.is_file():
            return False
        with self.cluster() as cluster:
            return cluster.ready()

    def _let_nodes_be_managed(self) -> None:
        """Gives the program that plays the nodes its rights."""
        cluster = self.cluster()
        for manifest in yaml.safe_load_all(_RBAC.read_text(encoding="utf-8")):
            cluster.apply(manifest)

    def _running(self) -> _Running | None:
        try:
            state = json.loads(self.places.state.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        parts = {part: Started(**started) for part, started in state["parts"].items()}
        return _Running(Ports(**state["ports"]), parts)

    def _write(self, running: _Running) -> None:
        state = {"ports": asdict(running.ports), "parts": {part: asdict(each) for part, each in running.parts.items()}}
        write_private(self.places.state, json.dumps(state, indent=2))

    def _stop(self) -> None:
        running = self._running()
        if running is None:
            return
        _end(running)
        self.places.state.unlink()

    def _alone(self, report: Report) -> AbstractContextManager[None]:
        """One `up` or `down` of a platform at a time; the lock is in the cache, since `down` removes the home."""
        name = hashlib.sha256(str(self.places.home).encode()).hexdigest()[:12]
        return alone(self.cache / f"platform-{name}.lock", report, "starts or stops this platform")


def _end(running: _Running) -> None:
    """Ends what runs; the API server before etcd, else it spends its last seconds asking for it."""
    stop(started for part, started in running.parts.items() if part != ETCD)
    stop(started for part, started in running.parts.items() if part == ETCD)
