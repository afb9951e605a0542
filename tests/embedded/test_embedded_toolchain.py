from pathlib import Path

import pytest
from embedded_builders import a_program, quiet

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.embedded import pulumi_engine, toolchain
from gpu_tenancy.embedded.toolchain import WHEEL, Go, find_go, go_version, trusting

pytestmark = pytest.mark.process


def a_go(folder: Path, version: str) -> Path:
    return a_program(folder, "go", f"echo {version}")


@pytest.mark.parametrize(
    ("said", "version"),
    [("go1.26.8", (1, 26, 8)), ("go1.27", (1, 27)), ("go1.27rc1", (1, 27)), ("devel", None)],
)
def test_the_version_of_go_is_read_from_its_output(tmp_path: Path, said: str, version: tuple[int, ...] | None) -> None:
    assert go_version(a_go(tmp_path / "bin", said)) == version


def test_a_go_that_is_not_there_has_no_version(tmp_path: Path) -> None:
    assert go_version(tmp_path / "go") is None


def test_a_go_on_the_path_that_is_new_enough_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = a_go(tmp_path / "bin", "go1.26.0")
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    assert find_go((1, 26, 0), tmp_path / "cache", quiet) == Go(program)


def test_a_go_on_the_path_that_is_too_old_is_passed_over_for_the_wheels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(a_go(tmp_path / "bin", "go1.21.3").parent), prepend=":")
    cached = a_go(tmp_path / "cache" / f"go-{WHEEL}" / "go" / "bin", f"go{WHEEL}")
    assert find_go((1, 26, 0), tmp_path / "cache", quiet).program == cached


def test_a_failed_installation_of_go_shows_the_installers_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    uv = a_program(tmp_path / "uv", "uv", "echo no such wheel >&2", "exit 1")
    monkeypatch.setattr(toolchain.uv, "find_uv_bin", lambda: str(uv))
    told: list[str] = []
    with pytest.raises(ConsoleError, match=f"installing Go {WHEEL} failed: no such wheel; install Go"):
        find_go((1, 26, 0), tmp_path / "cache", told.append)
    assert told == [f"installing Go {WHEEL} (no Go on the PATH)"]
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize(
    "reason",
    [
        "invalid peer certificate: UnknownIssuer",
        "tls: failed to verify certificate: x509: certificate signed by unknown authority",
        "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: unable to get local issuer certificate",
    ],
    ids=["uv", "go", "python"],
)
def test_untrusted_certificates_have_a_fix_of_their_own(reason: str) -> None:
    assert "set SSL_CERT_FILE to a file with its certificate" in trusting(reason, "install Go")
    assert trusting("no such host", "install Go") == "install Go"


def test_engine_names_its_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert pulumi_engine.main(["bulid"]) == 1
    assert capsys.readouterr().err == "error: bulid: unknown; use build or path\n"


def test_engine_that_cannot_be_built_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    go = a_program(tmp_path / "bin", "go", 'if [ "$1" = env ]; then echo go1.99; else echo no modules >&2; exit 1; fi')
    monkeypatch.setenv("PATH", f"{go.parent}:/usr/bin:/bin")
    assert pulumi_engine.main(["build"]) == 1
    error = capsys.readouterr().err
    assert "error: building the Pulumi CLI and engine failed. Last log lines:\nno modules; see the full log in" in error
    assert error.endswith(
        "set GOPROXY to a module proxy, or install the Pulumi CLI: https://www.pulumi.com/docs/install/\n"
    )
