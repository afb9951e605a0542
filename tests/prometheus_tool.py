"""Prometheus, promtool, amtool and busybox, for tests of expressions, alerts, recorded metrics and scripts."""

import os
import platform
import shutil
import subprocess
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from urllib.request import urlopen

import pytest
from starts import GUARD

from gpu_tenancy.base.grouping import grouped
from gpu_tenancy.base.progress import patient
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.embedded.processes import free_ports

_PACKAGES: Final = {
    "promtool": ("promtool", "prometheus"),
    "prometheus": ("prometheus",),
    "amtool": ("prometheus-alertmanager",),
    "busybox": ("busybox",),
}
"""Debian's packages of a program: promtool has its own since Debian 14, and was in Prometheus' before."""


def promtool() -> Path:
    return _program("promtool")


def prometheus() -> Path:
    return _program("prometheus")


@contextmanager
def recorded(samples: Iterable[str], folder: Path, port: int | None = None) -> Generator[str]:
    """The address of a Prometheus that has samples, such as `name{label="value"} 1 1785456000`."""
    families = grouped((sample.partition("{")[0], sample) for sample in samples)
    lines = [line for name, own in families.items() for line in (f"# TYPE {name} gauge", *own)]
    (folder / "samples").write_text("\n".join([*lines, "# EOF\n"]), encoding="utf-8")
    made = [str(promtool()), "tsdb", "create-blocks-from", "openmetrics", str(folder / "samples"), str(folder / "data")]
    subprocess.run(made, check=True, capture_output=True, timeout=GUARD)
    (folder / "prometheus.yml").write_text("{}", encoding="utf-8")
    # The samples are older or newer than the clock of this machine: they are never deleted.
    with running(folder / "prometheus.yml", folder / "data", "--storage.tsdb.retention.time=100y", port=port) as url:
        yield url


@contextmanager
def running(configuration: Path, data: Path, *more: str, port: int | None = None) -> Generator[str]:
    """The address of a Prometheus that is ready, while the block runs; `more` are further flags."""
    url = f"127.0.0.1:{port or free_ports(1)[0]}"
    words = [f"--config.file={configuration}", f"--storage.tsdb.path={data}", f"--web.listen-address={url}", *more]
    with subprocess.Popen(
        [str(prometheus()), *words, "--log.level=error"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as run:
        try:
            _wait_until_ready(f"http://{url}/-/ready", run)
            yield f"http://{url}"
        finally:
            run.terminate()


def _wait_until_ready(address: str, run: subprocess.Popen[bytes]) -> None:
    within = patient(60)
    until = time.monotonic() + within
    while True:
        try:
            with urlopen(address, timeout=5):  # noqa: S310 - a loopback address
                return
        except OSError:
            assert run.poll() is None, "Prometheus has ended"
            assert time.monotonic() < until, f"Prometheus is not ready after {within:g} s"
            time.sleep(0.1)


def amtool() -> Path:
    return _program("amtool")


def busybox() -> Path:
    return _program("busybox")


def _program(program: str) -> Path:
    """A program on the path, kept in the cache, or from Debian's package, for which no root is needed."""
    found = shutil.which(program)
    kept = Platform(Path(os.devnull)).cache / "promtool" / platform.machine() / program
    if found or kept.is_file():
        return Path(found) if found else kept
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        pytest.skip(f"{program} is not on the PATH, and there is no apt-get to fetch it with")
    with TemporaryDirectory() as text:
        folder = Path(text)
        package = _package(folder, program)
        subprocess.run(["dpkg-deb", "-x", str(package), str(folder / "all")], check=True, timeout=GUARD)
        kept.parent.mkdir(parents=True, exist_ok=True)
        unfinished = kept.with_suffix(f".{os.getpid()}")
        shutil.copy2(next((folder / "all").glob(f"**/bin/{program}")), unfinished)
        unfinished.replace(kept)
    return kept


def _package(folder: Path, program: str) -> Path:
    """The package, by the machine's own lists, or if it has none by lists in the folder."""
    lists = folder / "lists"
    lists.mkdir()
    own = ["-o", f"Dir::State::Lists={lists}", "-o", f"Dir::Cache={folder / 'cache'}", "-o", "Debug::NoLocking=true"]
    words = ""
    for name in _PACKAGES[program]:
        words += _apt(folder, "download", name)
        if packages := list(folder.glob("*.deb")):
            return packages[0]
    words += _apt(folder, *own, "update")
    for name in _PACKAGES[program]:
        words += _apt(folder, *own, "download", name)
        if packages := list(folder.glob("*.deb")):
            return packages[0]
    msg = f"{program} is not available: apt-get download {' or '.join(_PACKAGES[program])}: {words}; install Prometheus"
    raise RuntimeError(msg)


def _apt(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["apt-get", *arguments], cwd=folder, capture_output=True, text=True, timeout=GUARD, check=False
    )
    return done.stdout[-500:] + done.stderr[-500:]
