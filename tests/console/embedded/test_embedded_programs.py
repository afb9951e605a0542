import re
from pathlib import Path

import pytest
from embedded_builders import a_program, quiet

from console.cluster.client import Cluster
from console.embedded import programs
from console.embedded.programs import KUBERNETES, SOURCE, Programs, find_programs, needed_go
from console.errors import ConsoleError


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Go module in place of ours, with a compiler that only copies."""
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    source = tmp_path / "module"
    source.mkdir()
    (source / "go.mod").write_text("module x\n\ngo 1.26.0\n")
    monkeypatch.setattr(programs, "SOURCE", source)
    return source


def compiler(folder: Path, monkeypatch: pytest.MonkeyPatch, *build: str) -> None:
    """Puts a Go on the PATH that does these lines for `go build … -o FILE .`; FILE is $6."""
    go = a_program(folder / "bin", "go", 'if [ "$1" = env ]; then echo go1.26.0; exit; fi', *build)
    monkeypatch.setenv("PATH", str(go.parent), prepend=":")


def test_the_version_that_the_api_server_says_is_the_modules() -> None:
    pinned = re.search(r"^\s*k8s\.io/kubernetes (v\S+)$", (SOURCE / "go.mod").read_text(), re.MULTILINE)
    assert pinned
    assert pinned[1] == KUBERNETES


def test_the_api_server_that_answers_is_of_the_pinned_version(cluster: Cluster) -> None:
    node = cluster.resource("v1", "Node")
    assert node.namespaced is False
    assert needed_go() >= (1, 26)


def test_the_program_is_built_once_and_not_again(tmp_path: Path, module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler(tmp_path, monkeypatch, f"echo built >> {tmp_path / 'builds'}", 'echo program > "$6"')
    told: list[str] = []
    first = find_programs(tmp_path / "cache", told.append)
    assert first.built.read_text() == "program\n"
    assert told[0].startswith(f"building Kubernetes {KUBERNETES} from its pinned Go module")
    assert told[-1].startswith("built in ")
    assert find_programs(tmp_path / "cache", quiet) == first
    assert (tmp_path / "builds").read_text().splitlines() == ["built"]
    (module / "main.go").write_text("package main\n")
    assert find_programs(tmp_path / "cache", quiet).built != first.built


@pytest.mark.usefixtures("module")
def test_a_build_that_fails_tells_its_last_words_and_leaves_no_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler(tmp_path, monkeypatch, "echo undefined: x >&2", 'echo half > "$6"', "exit 1")
    with pytest.raises(ConsoleError, match=r"could not be built:\nundefined: x; the whole log is") as refused:
        find_programs(tmp_path / "cache", quiet)
    (log,) = (tmp_path / "cache").glob("controlplane-*/*")
    assert str(log) in str(refused.value)
    assert log.read_text() == "undefined: x\n"


def test_programs_of_kubebuilder_go_first_and_ours_fill_the_gaps(tmp_path: Path) -> None:
    etcd = a_program(tmp_path / "assets", "etcd", "exit")
    found = Programs(tmp_path / "controlplane", tmp_path / "assets")
    assert found.command("etcd") == [str(etcd)]
    assert found.command("kwok") == [str(tmp_path / "controlplane"), "kwok"]


def test_assets_that_are_no_folder_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "nowhere"))
    with pytest.raises(ConsoleError, match=f"KUBEBUILDER_ASSETS={tmp_path / 'nowhere'} is no folder"):
        find_programs(tmp_path, quiet)
