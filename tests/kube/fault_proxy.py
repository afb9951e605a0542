"""A proxy on the loopback in front of a real API server, which answers some requests itself, late or never."""

import ssl
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPSConnection
from pathlib import Path
from threading import Lock
from time import monotonic, sleep

from cluster_builders import a_kubeconfig
from loopback import LOOPBACK, Handler, serving
from starts import GUARD

from gpu_tenancy.embedded.parts import read_ports
from gpu_tenancy.embedded.platform import Platform


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault in place of, or before, the server's answer."""

    status: int = 0  # answered instead of the server; 0 for none
    headers: tuple[tuple[str, str], ...] = ()
    cut: bool = False  # the connection is closed without an answer
    cut_after: bool = False  # the server does the work, but its answer is lost
    delay: float = 0  # seconds before anything else


@dataclass
class Proxy:
    """A running proxy."""

    kubeconfig: Path
    choose: Callable[[str, str], Fault | None] = lambda _method, _path: None  # by method and path
    seen: list[tuple[str, str, float]] = field(default_factory=list[tuple[str, str, float]])  # method, path, moment

    def first(self, number: int, fault: Fault, method: str = "PATCH") -> None:
        """Applies a fault to the next `number` requests of a method."""
        left, lock = [number], Lock()

        def choose(asked: str, _path: str) -> Fault | None:
            with lock:
                if asked != method or not left[0]:
                    return None
                left[0] -= 1
                return fault

        self.choose = choose

    def times(self, method: str) -> list[float]:
        return [moment for one, _, moment in self.seen if one == method]


@contextmanager
def proxied(platform: Platform, folder: Path) -> Generator[Proxy]:
    places = platform.places
    target = f"{LOOPBACK}:{read_ports(places).api}"
    trust = ssl.create_default_context(cafile=places.certificate("authority"))
    trust.load_cert_chain(places.certificate("admin"), places.key("admin"))

    class Forward(Handler):
        protocol_version = "HTTP/1.1"

        def forward(self) -> None:
            found.seen.append((self.command, self.path, monotonic()))
            body = self.body()
            fault = found.choose(self.command, self.path) or Fault()
            sleep(fault.delay)
            if fault.cut:
                self.close_connection = True
                return
            if fault.status:
                self.answer(fault.status, b"a proxy's own words", *fault.headers)
                return
            connection = HTTPSConnection(target, context=trust, timeout=GUARD)
            names = ("Accept", "Content-Type")
            connection.request(self.command, self.path, body, {name: self.headers[name] for name in names})
            answer = connection.getresponse()
            content = answer.read()
            connection.close()
            if fault.cut_after:
                self.close_connection = True
                return
            self.answer(answer.status, content, ("Content-Type", answer.headers["Content-Type"]))

        do_GET = do_PATCH = do_DELETE = do_POST = forward  # noqa: N815 - the base class names them so

    with serving(Forward) as address:
        found = Proxy(a_kubeconfig(folder / "proxy.kubeconfig", {"server": address}, {"token": "proxy"}))
        yield found
