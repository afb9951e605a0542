"""Controllers of operators as processes of the embedded platform, as their own Helm charts describe them."""

import http.client
import ssl
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain, repeat
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, TypeAdapter

from gpu_tenancy.base.json import Json, at, map_at, maps_at, text_at
from gpu_tenancy.base.output import write_private
from gpu_tenancy.base.progress import Report, patient
from gpu_tenancy.embedded.controllers.adapting import API_SERVICE, DEFINITION, DEFINITIONS, WEBHOOKS
from gpu_tenancy.embedded.controllers.launching import Launch, Wanted, apply_all, placed, prepare
from gpu_tenancy.embedded.controllers.table import Ready
from gpu_tenancy.embedded.parts import LOOPBACK, Places
from gpu_tenancy.embedded.processes import Started, at_free_ports, failure, listens, start, stop, uninterrupted
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import ApiError, UnreachableError
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.waiting import wait_for
from gpu_tenancy.model.plan.operators import ReleasePlan

READY_WITHIN: Final = 90.0  # seconds in which a controller becomes ready; about 5 are usual
_API_SERVICES: Final = "apiregistration.k8s.io/v1"
_REGISTRATIONS: Final = "admissionregistration.k8s.io/v1"
_OK: Final = 200


class Controller(BaseModel):
    """One started controller, by its Deployment in the chart; `fingerprint` is of program, configuration and chart."""

    model_config = ConfigDict(frozen=True)

    name: str
    chart: str
    version: str
    fingerprint: str
    ports: Mapping[str, int]
    started: Started

    @property
    def runs(self) -> bool:
        """Whether its process is alive."""
        return self.started.process is not None


_RECORD = TypeAdapter(tuple[Controller, ...])


class Controllers:
    """The controllers of one platform, with a record of their processes in its folder."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._record = places.home / "controllers.json"

    def recorded(self) -> tuple[Controller, ...]:
        """The started controllers, whether or not they still run, in the order of their start."""
        try:
            return _RECORD.validate_json(self._record.read_bytes())
        except FileNotFoundError:
            return ()

    def _write(self, controllers: Iterable[Controller]) -> None:
        write_private(self._record, _RECORD.dump_json(tuple(controllers), indent=2).decode())

    def running(self) -> set[str]:
        """The charts whose controllers run."""
        return {controller.chart for controller in self.recorded() if controller.runs}

    def stop(self) -> None:
        """Stops all controllers; their objects stay in the cluster."""
        stop(controller.started for controller in self.recorded())
        self._record.unlink(missing_ok=True)

    def remove(self, cluster: Cluster, kept: Collection[str] = ()) -> None:
        """Stops all controllers but the kept ones, deletes their webhooks and APIServices, and ends their conversions.

        Objects of the kept ones stay unchanged: after each change of a definition, the API server builds handlers,
        OpenAPI and watches of that kind again.
        """
        recorded = self.recorded()
        removed = {controller.name for controller in recorded}.difference(kept)
        if not removed:
            return
        ports = {port for controller in recorded if controller.name in kept for port in controller.ports.values()}
        for kind in WEBHOOKS:
            for item in cluster.list(_REGISTRATIONS, kind):
                if not ports & {_port(hook) for hook in maps_at(item, "webhooks")}:
                    cluster.delete(Reference.of(item))
        for item in cluster.list(_API_SERVICES, API_SERVICE):
            if at(item, "spec", "service") and at(item, "spec", "service", "port") not in ports:
                cluster.delete(Reference.of(item))
        for item in cluster.list(DEFINITIONS, DEFINITION):
            webhook = map_at(item, "spec", "conversion", "webhook")
            if webhook and _port(webhook) not in ports:
                conversion: Json = {"strategy": "None", "webhook": None}
                cluster.patch(Reference.of(item), {"spec": {"conversion": conversion}})
        self._stop_some(removed)

    def superfluous(self, wanted: Sequence[Wanted]) -> bool:
        """Whether unwanted controllers run: they must see their objects deleted before they stop."""
        names = {name for item in wanted for name in item.row.programs}
        return any(controller.name not in names for controller in self.recorded())

    def bring(self, cluster: Cluster, wanted: Sequence[Wanted], cache: Path, report: Report) -> None:
        """Starts controllers that do not run or have changed; raises ConsoleError if one does not become ready."""
        if self.superfluous(wanted):  # another set of operators, whose webhooks must not stay
            self.remove(cluster, {name for item in wanted for name in item.row.programs})
        running = {controller.name: controller for controller in self.recorded()}
        current = {(name, one.fingerprint) for name, one in running.items() if one.runs}
        changed = [
            item for item in wanted if any((name, item.fingerprint) not in current for name in item.row.programs)
        ]
        if not changed:
            return
        report(f"starting {', '.join(f'{item.name} {item.version}' for item in changed)}")
        before = {name: controller.ports for name, controller in running.items() if controller.runs}
        ports = chain([before], repeat({}))  # those of before may be what another process took

        def launch() -> None:
            self._stop_some({name for item in changed for name in item.row.programs})
            own = next(ports)
            self._launch(
                cluster, [prepare(cluster, item, self._places, cache, report).at_ports(own) for item in changed]
            )

        at_free_ports(launch)

    def _launch(self, cluster: Cluster, launches: Sequence[Launch]) -> None:
        for launch in launches:
            launch.admit(cluster)
            for name in launch.item.row.programs:
                self._start(cluster, launch, name)
        for launch in launches:
            for name, program in launch.item.row.programs.items():
                self._until_ready(name, program.ready, launch)
            launch.register(cluster)
            apply_all(cluster, list(launch.then()))
        for release in {launch.item.release.name: launch.item.release for launch in launches}.values():
            _until_accepted(cluster, release)

    def _stop_some(self, names: set[str]) -> None:
        recorded = self.recorded()
        stop(controller.started for controller in recorded if controller.name in names)
        self._write(controller for controller in recorded if controller.name not in names)

    def _start(self, cluster: Cluster, launch: Launch, name: str) -> None:
        command, environment = launch.command(cluster, name)
        item = launch.item
        with uninterrupted():
            controller = Controller(
                name=name,
                chart=item.name,
                version=item.version,
                fingerprint=item.fingerprint,
                ports=launch.ports[name],
                started=start(command, self._places.log(name), environment=environment),
            )
            self._write((*self.recorded(), controller))

    def _until_ready(self, name: str, ready: Ready, launch: Launch) -> None:
        within = patient(READY_WITHIN)
        deadline = time.monotonic() + within
        authority, ports = launch.folder(name) / "certificates" / "ca.crt", launch.ports[name]
        # A manager that cannot listen at one of its ports answers at others until its caches are filled, then exits.
        while not (_answers(ready, ports[ready.port], authority) and all(map(listens, ports.values()))):
            runs = any(controller.name == name and controller.runs for controller in self.recorded())
            if not runs or time.monotonic() > deadline:
                raise failure(name, f"was not ready after {within:g} s" if runs else "exited", self._places.log(name))
            time.sleep(0.2)


def _port(webhook: Mapping[str, Json]) -> int | None:
    """The loopback port at which the API server calls an admission or conversion webhook."""
    return urlsplit(text_at(webhook, "clientConfig", "url")).port


def _until_accepted(cluster: Cluster, release: ReleasePlan) -> None:
    """Waits until the webhooks accept a sample, as the gate of `components.operators.Operator` does."""
    if release.probe is None:
        return
    manifest, last = placed(cluster, dict(release.probe.manifest), release.namespace), [""]

    def accepted() -> bool:
        try:
            cluster.create(manifest, dry_run=True, once=True)
        except (ApiError, UnreachableError) as error:
            last[0] = str(error)
            return False
        return True

    wait_for(
        accepted, what=f"the webhooks of {release.name} to accept a sample", timeout=READY_WITHIN, fix=lambda: last[0]
    )


def _answers(ready: Ready, port: int, authority: Path) -> bool:
    connection = (
        http.client.HTTPSConnection(LOOPBACK, port, timeout=2, context=ssl.create_default_context(cafile=authority))
        if ready.scheme == "https"
        else http.client.HTTPConnection(LOOPBACK, port, timeout=2)
    )
    with suppress(OSError, http.client.HTTPException):
        connection.request("GET", ready.path)
        return connection.getresponse().status == _OK
    return False
