"""Processes, Go and the modules of Volcano."""

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import platformdirs
import psutil
import pytest
import yaml
from embedded_builders import a_program, quiet

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.progress import Report
from gpu_tenancy.embedded import building, processes, pulumi_engine
from gpu_tenancy.embedded.building import WHEEL, Go, find_go, go_version, trusting
from gpu_tenancy.embedded.definitions import module_folders
from gpu_tenancy.embedded.definitions.pins import Module, read_pins
from gpu_tenancy.embedded.processes import free_ports, start, stop, tail, uninterrupted
from gpu_tenancy.kube.waiting import wait_for
from gpu_tenancy.model.catalogue.operators import charts

pytestmark = pytest.mark.process


def test_process_runs_until_stopped_and_is_logged(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "part.log"
    started = start([str(a_program(tmp_path, "part", "echo $WORD", "exec sleep 60"))], log, environment={"WORD": "up"})
    try:
        assert started.process
        assert wait_for(lambda: tail(log) or None, what="its output") == "up"
    finally:
        stop([started])
    assert started.process is None


def test_a_process_that_does_not_listen_is_ended_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "TERMINATED_WITHIN", 0.3)
    log = tmp_path / "part.log"
    program = a_program(tmp_path, "part", "trap '' TERM", "echo deaf", "while true; do sleep 0.05; done")
    started = start([str(program)], log)
    wait_for(lambda: tail(log) or None, what="its output")
    stop([started])
    assert started.process is None


def test_another_process_that_took_the_pid_is_left_alone(tmp_path: Path) -> None:
    started = start([str(a_program(tmp_path, "part", "exec sleep 60"))], tmp_path / "part.log")
    try:
        other = replace(started, began=started.began - 60)
        assert other.process is None
        stop([other])
        assert psutil.Process(started.pid).is_running()
    finally:
        stop([started])


def test_a_process_that_ended_by_itself_is_no_longer_there(tmp_path: Path) -> None:
    started = start([str(a_program(tmp_path, "part", "exit 3"))], tmp_path / "part.log")
    wait_for(lambda: not started.process or None, what="its end")
    stop([started])


def test_ctrl_c_waits_for_uninterruptible_work() -> None:
    done: list[str] = []

    def work() -> None:
        with uninterrupted():
            for moment in ("once", "again"):  # `uv run` passes on what the terminal has sent already
                os.kill(os.getpid(), signal.SIGINT)
                done.append(moment)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["once", "again"]


def test_free_ports_differ_and_outgoing_connections_avoid_them() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert max(ports) < 30_000  # NodePorts, then ports of outgoing connections on Linux and macOS


def test_the_tail_of_a_log_is_its_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"{number}\n" for number in range(20)))
    assert tail(log, 2) == "18\n19"
    assert tail(tmp_path / "none") == ""


def a_go(folder: Path, version: str) -> Path:
    return a_program(folder, "go", f"echo {version}")


@pytest.mark.parametrize(
    ("said", "version"), [("go1.26.8", (1, 26, 8)), ("go1.27", (1, 27)), ("go1.27rc1", (1, 27)), ("devel", None)]
)
def test_the_version_of_go_is_read_from_its_output(tmp_path: Path, said: str, version: tuple[int, ...] | None) -> None:
    assert go_version(a_go(tmp_path / "bin", said)) == version


def test_a_go_that_is_not_there_has_no_version(tmp_path: Path) -> None:
    assert go_version(tmp_path / "go") is None


def test_a_go_on_the_path_that_is_new_enough_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = a_go(tmp_path / "bin", "go1.26.0")
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    assert find_go((1, 26, 0), tmp_path / "cache", quiet) == Go(program)


def test_skips_an_old_go_for_the_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(a_go(tmp_path / "bin", "go1.21.3").parent), prepend=":")
    cached = a_go(tmp_path / "cache" / f"go-{WHEEL}" / "go" / "bin", f"go{WHEEL}")
    assert find_go((1, 26, 0), tmp_path / "cache", quiet).program == cached


def test_failed_go_installation_shows_the_installers_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    uv = a_program(tmp_path / "uv", "uv", "echo no such wheel >&2", "exit 1")
    monkeypatch.setattr(building.uv, "find_uv_bin", lambda: str(uv))
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


# The Go module and the definitions of Volcano, compared with the pinned Volcano itself.


SOURCE: Final = Path(building.__file__).parent / "volcano"
VOLCANO: Final = "volcano.sh/volcano"
APIS: Final = "volcano.sh/apis"


@pytest.fixture(scope="module")
def go(report: Report) -> Go:
    return find_go((1, 25), platformdirs.user_cache_path("gpu-tenancy"), report)


@pytest.fixture(scope="module")
def own(go: Go) -> dict[str, Any]:
    return module_file(go, SOURCE)


@pytest.fixture(scope="module")
def upstream(go: Go) -> Path:
    """The folder of the pinned Volcano in Go's module cache, verified by the sums of the definitions."""
    module = next(iter(definitions()))
    return module_folders([module], go)[module]


def definitions() -> set[Module]:
    return {pin.source for pin in read_pins() if isinstance(pin.source, Module) and pin.source.name == VOLCANO}


def module_file(go: Go, folder: Path) -> dict[str, Any]:
    done = go.output("mod", "edit", "-json", folder=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def required(module: dict[str, Any]) -> dict[str, str]:
    return {item["Path"]: item["Version"] for item in module["Require"]}


def replaced(module: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {item["Old"]["Path"]: (item["New"]["Path"], item["New"].get("Version", "")) for item in module["Replace"]}


def sums(folder: Path) -> dict[tuple[str, str], str]:
    lines = (folder / "go.sum").read_text(encoding="utf-8").splitlines()
    return {(name, version): checksum for name, version, checksum in (line.split() for line in lines)}


def test_controllers_and_definitions_have_one_version(own: dict[str, Any]) -> None:
    assert {module.version for module in definitions()} == {required(own)[VOLCANO]}


def test_clusters_get_a_chart_without_a_known_advisory() -> None:
    """GHSA-j38h-7pfq-cxmw: a tenant can stall the scheduler; fixed in 1.15.2."""
    assert tuple(map(int, charts()["volcano"].version.split("."))) >= (1, 15, 2)


def test_go_sum_has_both_checksums_of_each_module(own: dict[str, Any]) -> None:
    entries, replacements = sums(SOURCE), replaced(own)
    built = {replacements.get(name, (name, version)) for name, version in required(own).items()}
    assert {APIS, VOLCANO} <= {name for name, _ in built}
    for name, version in built:
        assert entries[name, version].startswith("h1:")
        assert entries[name, f"{version}/go.mod"].startswith("h1:")


def test_go_sum_has_the_checksums_of_the_definitions() -> None:
    entries = sums(SOURCE)
    assert definitions()
    for module in definitions():
        assert module.sums == (entries[VOLCANO, module.version], entries[VOLCANO, f"{module.version}/go.mod"])


def test_modules_are_replaced_and_required_as_by_volcano_itself(go: Go, own: dict[str, Any], upstream: Path) -> None:
    """Volcano tests and publishes these programs; they are not its sources with other versions of Kubernetes."""
    theirs = module_file(go, upstream)
    ours = replaced(own)
    assert ours.pop(APIS)[0] == APIS
    expected = replaced(theirs)
    assert expected.pop(APIS)[1] == "", "Volcano no longer builds with a folder of its own: remove our replacement"
    assert ours == expected
    versions = required(theirs)
    assert {name: version for name, version in required(own).items() if versions.get(name, version) != version} == {}


def test_checksums_are_those_of_volcano_itself(upstream: Path) -> None:
    theirs = sums(upstream)
    shared = {key: checksum for key, checksum in sums(SOURCE).items() if key in theirs}
    assert len(shared) > 100
    assert shared == {key: theirs[key] for key in shared}


def test_the_tools_are_the_programs_of_the_charts_images(own: dict[str, Any], upstream: Path) -> None:
    values = yaml.safe_load((upstream / "installer/helm/chart/volcano/values.yaml").read_text(encoding="utf-8"))
    images = (values["basic"][f"{component}_image_name"] for component in ("admission", "controller", "scheduler"))
    programs = {image.partition("/vc-")[2] for image in images}
    assert {item["Path"] for item in own["Tool"]} == {f"{VOLCANO}/cmd/{program}" for program in programs}
    assert all((upstream / "cmd" / program / "main.go").is_file() for program in programs)


def test_each_definition_of_the_chart_is_pinned(upstream: Path) -> None:
    """The scheduler watches kinds that no stack has, and schedules nothing until all of them are served."""
    chart = upstream / "installer/helm/chart/volcano"
    installed = {
        file.name for folder in ("crd/bases", "charts/jobflow/crd/bases") for file in chart.glob(f"{folder}/*")
    }
    assert installed == {pin.file for pin in read_pins() if pin.operator == "volcano"}
