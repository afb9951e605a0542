"""The embedded platform: a real control plane on this machine, with simulated nodes and GPUs."""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Final

import platformdirs
from pydantic import TypeAdapter

from gpu_tenancy.base.errors import SPACE, ConsoleError
from gpu_tenancy.base.output import write_private
from gpu_tenancy.base.progress import Report, patient
from gpu_tenancy.embedded import parts, processes
from gpu_tenancy.embedded.certificates import address, client_of_etcd, make_certificates, write_client_configs
from gpu_tenancy.embedded.controllers import Controllers
from gpu_tenancy.embedded.definitions import Etcd, annotated, install
from gpu_tenancy.embedded.definitions.pins import Pin
from gpu_tenancy.embedded.parts import API_SERVER, CONTROLLERS, ETCD, LOOPBACK, PARTS, Places, Ports
from gpu_tenancy.embedded.programs import Programs, find_programs, present_programs
from gpu_tenancy.kube.apply import await_kinds
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.live import ApplyError
from gpu_tenancy.model.names import EMBEDDED_CONTEXT
from gpu_tenancy.model.yaml import parse_all

_RBAC: Final = Path(__file__).parent / "kwok-rbac.yaml"
READY_WITHIN: Final = 90.0  # seconds in which the API server must be ready; it usually takes four

# Seconds in which requests are repeated while the API server, or a webhook that it calls, does not answer.
RETRY_SECONDS: Final = 30.0

_FULL: Final = "no space left on device"  # the text of ENOSPC in programs in Go
_SEARCHED: Final = 500  # lines at the end of a log to search; stacks of goroutines follow the cause


@dataclass(frozen=True, slots=True)
class PartStatus:
    """The status of a part; `pid` is None if it is not running."""

    part: str
    pid: int | None


@dataclass(frozen=True, slots=True)
class Carried:
    """The stack on a platform, and the number of its objects."""

    name: str
    engine: str
    objects: int


@dataclass(frozen=True, slots=True)
class _Running:
    """The started parts, as in the state file of the platform, and the service whose admission settings they have."""

    ports: Ports
    parts: dict[str, processes.Started]
    service: str = ""


_STATE: Final = TypeAdapter(_Running)


class Platform:
    """One embedded platform in its own folder; it listens on loopback only, and never changes another kubeconfig."""

    def __init__(self, home: Path | None = None, cache: Path | None = None) -> None:
        """Sets the folders of data and of programs (None: in the user's state and cache folders); starts nothing."""
        # Absolute, because a program that is rendered meanwhile has another working directory.
        self.places = Places((home or platformdirs.user_state_path("gpu-tenancy") / "embedded").absolute())
        self.cache = (cache or platformdirs.user_cache_path("gpu-tenancy")).absolute()
        self.kubeconfig = self.places.kubeconfig  # of the administrator
        self.controllers = Controllers(self.places)  # of operators

    def cluster(self) -> Cluster:
        """A client by its own context of the kubeconfig; raises ConsoleError if it is damaged or has another server."""
        cluster = Cluster(self.kubeconfig, EMBEDDED_CONTEXT, retry_seconds=RETRY_SECONDS)
        running = self._running()
        if running and cluster.server != (own := address(running.ports)):
            raise ConsoleError(
                f"{self.kubeconfig}: context {EMBEDDED_CONTEXT}: {cluster.server} is not the embedded platform, "
                f"which is {own}",
                "run `tenancy local up` with the stack that it carries, or `tenancy local down`",
            )
        return cluster

    def status(self) -> tuple[PartStatus, ...]:
        """The status of each part, in the order of their start."""
        running = self._running()
        alive = {part: started.pid for part, started in running.parts.items() if started.process} if running else {}
        return (
            *(PartStatus(part, alive.get(part)) for part in PARTS),
            *(PartStatus(one.name, one.started.pid if one.runs else None) for one in self.controllers.recorded()),
        )

    def carried(self) -> Carried | None:
        """The deployed stack; None if there is none."""
        if not self.places.carried.is_file():
            return None
        return Carried(*json.loads(self.places.carried.read_text(encoding="utf-8")))

    def carry(self, stack: Carried) -> None:
        """Saves which stack is deployed."""
        write_private(self.places.carried, json.dumps(astuple(stack)))

    @property
    def prepared(self) -> bool:
        """Whether all programs are on this machine, so that `up` takes seconds and not minutes."""
        return present_programs(self.cache).complete

    def up(self, report: Report, service: str = "", files: Mapping[Pin, Path] = MappingProxyType({})) -> None:
        """Starts the platform if it is not running, and waits until it is ready.

        `service` has the admission settings (`parts.services`); empty keeps the running ones. `files` are of the
        definitions to install before the API server starts, as `fetch` returns them. Raises ConsoleError, and stops all
        parts again, if a program is not available, a part does not start, or a definition is not served.
        """
        self.places.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._alone(report):
            self._bring(report, service, files)
        if files:
            self.install(files, report)

    def _bring(self, report: Report, service: str, files: Mapping[Pin, Path]) -> None:
        before, reason = self._running(), ""
        if before:
            service = service or before.service
            exited = [part for part in PARTS if part not in before.parts or not before.parts[part].process]
            if service != before.service:
                reason = f"admission settings of {service.upper()}"
            elif exited:
                reason = f"{', '.join(exited)} exited"
            else:
                try:
                    self.cluster().close()
                except ConsoleError as error:  # the administrator's kubeconfig does not lead to this platform
                    report(f"writing the kubeconfig of the platform again: {error.what}")
                    write_client_configs(self.places, before.ports)
                if self._answers():
                    return
                reason = "the API server does not answer"
        programs = find_programs(self.cache, report)
        self._stop()
        report(f"restarting the control plane: {reason}" if reason else "starting the control plane")
        make_certificates(self.places)
        definitions = () if self.places.data.exists() else annotated(files, self.cache)
        processes.at_free_ports(lambda: self._start(programs, service, definitions))

    def install(self, files: Mapping[Pin, Path], report: Report) -> None:
        """Installs missing definitions, and has the controllers know their kinds; raises ConsoleError if that fails.

        The quota controller looks for new kinds each 30 s. Until it counts them, the API server rejects objects of
        these kinds where a ResourceQuota counts them (`status unknown for quota`); when it starts, it knows all kinds.
        """
        with self.cluster() as cluster:
            installed = install(cluster, files, self.cache, report)
        with self._alone(report):
            if installed and (running := self._running()):
                processes.stop([running.parts[CONTROLLERS]])
                self._start_part(find_programs(self.cache, report), running, CONTROLLERS)

    def down(self, report: Report = lambda _: None) -> None:
        """Stops every process and deletes all data; built and downloaded programs are kept."""
        if not self.places.home.exists():
            return
        with self._alone(report):
            self._stop()
            shutil.rmtree(self.places.home)

    def _start(self, programs: Programs, service: str, definitions: Sequence[Manifest]) -> None:
        running = _Running(Ports(*processes.free_ports(len(fields(Ports)))), {}, service)
        try:
            self._start_parts(programs, running, definitions)
        except BaseException:
            with processes.uninterrupted():
                _end(running)
                self.places.state.unlink(missing_ok=True)
            raise

    def _start_parts(self, programs: Programs, running: _Running, definitions: Sequence[Manifest]) -> None:
        write_client_configs(self.places, running.ports)
        self._start_part(programs, running, ETCD)
        if definitions:
            etcd = Etcd(LOOPBACK, running.ports.etcd, client_of_etcd(self.places))
            self._await(ETCD, etcd.answers, running)
            etcd.store(definitions)
        self._start_part(programs, running, API_SERVER)
        self._await(API_SERVER, self._answers, running)
        cluster = self.cluster()
        # What starts later looks for kinds once: without one, a controller exits, and a quota rejects objects of it.
        if failures := await_kinds(cluster, definitions):
            raise ApplyError(failures, ())
        for manifest in (*parse_all(_RBAC.read_bytes()), *parts.admission_objects(running.service)):
            cluster.apply(manifest)
        for part in (part for part in PARTS if part not in {ETCD, API_SERVER}):
            self._start_part(programs, running, part)
        # The controllers work if they have created the service account of a namespace.
        account = ("v1", "ServiceAccount", "default", "default")
        self._await(CONTROLLERS, lambda: cluster.get(*account) is not None, running)
        self._check_running(running)  # a part with an invalid flag exits in this time

    def _start_part(self, programs: Programs, running: _Running, part: str) -> None:
        command = [*(programs.command(part) or ()), *parts.flags(part, self.places, running.ports)]
        command += parts.admission_flags(running.service, self.places.home) if part == API_SERVER else []
        # By Go's default GOGC, an eighth of the API server's time is garbage collection.
        environment = {"KWOK_WORKDIR": str(self.places.home / "kwok"), "GOGC": os.environ.get("GOGC", "200")}
        with processes.uninterrupted():
            running.parts[part] = processes.start(command, self.places.log(part), environment=environment)
            write_private(self.places.state, _STATE.dump_json(running, indent=2).decode())

    def _await(self, part: str, works: Callable[[], bool], running: _Running) -> None:
        within = patient(READY_WITHIN)
        deadline = time.monotonic() + within
        while not works():
            self._check_running(running)
            if time.monotonic() > deadline:
                self._fail(part, f"was not ready after {within:g} s")
            time.sleep(0.1)

    def _check_running(self, running: _Running) -> None:
        for part, started in running.parts.items():
            if started.process is None:
                self._fail(part, "exited")

    def _fail(self, part: str, what: str) -> None:
        log = self.places.log(part)
        if _FULL in processes.tail(log, _SEARCHED):
            raise ConsoleError(f"{part} {what}: disk full: {self.places.home}", SPACE)
        raise processes.failure(part, what, log)

    def check(self) -> None:
        """Checks that every started part still runs; raises ConsoleError with the last log lines of an exited one."""
        if running := self._running():
            self._check_running(running)

    def _answers(self) -> bool:
        if not self.kubeconfig.is_file():
            return False
        with self.cluster() as cluster:
            return cluster.ready()

    def _running(self) -> _Running | None:
        try:
            return _STATE.validate_json(self.places.state.read_bytes())
        except (FileNotFoundError, ValueError):
            return None  # not started, or its state is damaged: `marked` knows its processes

    def _stop(self) -> None:
        self.controllers.stop()
        if running := self._running():
            _end(running)
        processes.stop(processes.marked(self.places.log(ETCD).parent))
        self.places.state.unlink(missing_ok=True)

    def deploying(self, report: Report) -> AbstractContextManager[None]:
        """Allows one deployment at a time; another one waits, and reports it."""
        return processes.alone(self._lock("deployment"), report, "deploying to this platform")

    def _alone(self, report: Report) -> AbstractContextManager[None]:
        return processes.alone(self._lock("platform"), report, "starting or stopping this platform")

    def _lock(self, what: str) -> Path:
        """In the cache, because `down` deletes the home."""
        return self.cache / f"{what}-{hashlib.sha256(str(self.places.home).encode()).hexdigest()[:12]}.lock"


def _end(running: _Running) -> None:
    """Stops etcd last, because an API server without etcd stops slowly."""
    processes.stop(started for part, started in running.parts.items() if part != ETCD)
    processes.stop(started for part, started in running.parts.items() if part == ETCD)
