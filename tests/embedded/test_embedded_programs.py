import fcntl
import threading
from pathlib import Path

import pytest
from embedded_builders import a_program, quiet

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.progress import Report
from gpu_tenancy.embedded import programs
from gpu_tenancy.embedded.building import built
from gpu_tenancy.embedded.parts import PARTS
from gpu_tenancy.embedded.processes import alone
from gpu_tenancy.embedded.programs import Programs, UnavailableError, find_programs, present_programs, read_official


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.delenv("GPU_TENANCY_REGISTRY", raising=False)


def official(_official: object, cache: Path, _report: Report) -> Path:
    folder = read_official().folder(cache)
    for part in PARTS:
        a_program(folder, part, "exit")
    return folder


def unavailable(_official: object, _cache: Path, _report: Report) -> Path:
    raise UnavailableError("https://registry.example.com: no such host")


def own_build(cache: Path, _report: Report) -> Path:
    return a_program(built(cache).parent, "controlplane", "exit")


def test_programs_in_a_folder_precede_the_build(tmp_path: Path) -> None:
    etcd = a_program(tmp_path / "assets", "etcd", "exit")
    found = Programs((tmp_path / "assets",), tmp_path / "controlplane")
    assert found.command("etcd") == [str(etcd)]
    assert found.command("kwok") == [str(tmp_path / "controlplane"), "kwok"]
    assert found.complete
    assert not Programs((tmp_path / "assets",)).complete


def test_a_folder_with_every_program_is_all_that_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for part in PARTS:
        a_program(tmp_path / "assets", part, "exit")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "assets"))
    told: list[str] = []
    found = find_programs(tmp_path / "cache", told.append)
    assert found.command("kwok") == [str(tmp_path / "assets" / "kwok")]
    assert told == []
    assert not (tmp_path / "cache").exists()


def test_assets_must_be_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "nowhere"))
    with pytest.raises(ConsoleError, match=f"KUBEBUILDER_ASSETS: {tmp_path / 'nowhere'} is not a folder"):
        find_programs(tmp_path, quiet)


def test_downloads_official_programs_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "download", official)
    assert not present_programs(tmp_path).complete
    found = find_programs(tmp_path, quiet)
    assert found.command("etcd") == [str(read_official().folder(tmp_path) / "etcd")]
    monkeypatch.setattr(programs, "download", unavailable)
    assert find_programs(tmp_path, quiet) == found


def test_without_a_registry_they_are_built_and_why_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "download", unavailable)
    monkeypatch.setattr(programs, "build", own_build)
    told: list[str] = []
    assert find_programs(tmp_path, told.append).command("etcd") == [str(built(tmp_path)), "etcd"]
    assert told == [
        "official programs are not available (https://registry.example.com: no such host); building from source"
    ]


def test_without_a_registry_no_official_program_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    official(None, tmp_path, quiet)
    assert present_programs(tmp_path).complete
    monkeypatch.setenv("GPU_TENANCY_REGISTRY", "off")
    assert not present_programs(tmp_path).complete
    monkeypatch.setattr(programs, "build", own_build)
    assert find_programs(tmp_path, quiet).built == built(tmp_path)


def test_a_process_that_waits_for_another_one_reports_it(tmp_path: Path) -> None:
    lock, told, done = tmp_path / "cache" / "lock", list[str](), threading.Event()
    lock.parent.mkdir()

    def second() -> None:
        with alone(lock, told.append, "building it"):
            done.set()

    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        waiter = threading.Thread(target=second)
        waiter.start()
        while not told:
            assert not done.wait(0.01)
    waiter.join(10)
    assert told == ["waiting for another process that is building it"]
    assert done.is_set()
