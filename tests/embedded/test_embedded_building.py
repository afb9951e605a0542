import json
import re
import ssl
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from embedded_builders import a_program, quiet
from starts import GUARD

from gpu_tenancy.base import progress
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.embedded import building
from gpu_tenancy.embedded.building import KUBERNETES, SOURCE, build, built, needed_go
from gpu_tenancy.embedded.platform import Platform

pytestmark = pytest.mark.process

Compiler = Callable[..., None]


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    """A Go module in place of ours, and a Go on the PATH that lists two packages and runs these lines for a build."""
    source = tmp_path / "module"
    source.mkdir()
    (source / "go.mod").write_text("module x\n\ngo 1.26.0\n")

    def source_folder(_name: str) -> Path:
        return source

    monkeypatch.setattr(building, "source_folder", source_folder)

    def put(*lines: str) -> None:
        stand_in = (
            'if [ "$1" = env ]; then echo go1.26.0; exit; fi',
            'if [ "$1" = list ]; then printf "a/one\\na/two\\n"; exit; fi',
            'for word; do [ "$previous" = -o ] && target=$word; previous=$word; done',
        )
        go = a_program(tmp_path / "bin", "go", *stand_in, *lines)
        monkeypatch.setenv("PATH", f"{go.parent}:/usr/bin:/bin")

    return put


def test_the_version_that_the_api_server_reports_is_the_modules() -> None:
    pinned = re.search(r"^\s*k8s\.io/kubernetes (v\S+)$", (SOURCE / "go.mod").read_text(), re.MULTILINE)
    assert pinned
    assert pinned[1] == KUBERNETES


def test_the_api_server_that_answers_is_of_the_pinned_version(platform: Platform) -> None:
    context = ssl.create_default_context(cafile=platform.places.certificate("authority"))
    context.load_cert_chain(platform.places.certificate("admin"), platform.places.key("admin"))
    server = yaml.safe_load(platform.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    with urllib.request.urlopen(f"{server}/version", context=context, timeout=GUARD) as answer:  # noqa: S310 - loopback
        assert json.load(answer)["gitVersion"] == KUBERNETES
    assert needed_go() >= (1, 26)


def test_builds_with_progress_once_for_each_source(tmp_path: Path, compiler: Compiler) -> None:
    compiler("echo a/one; echo a/two", 'echo program > "${target}controlplane"')
    told: list[str] = []
    build(tmp_path / "cache", told.append)
    program = built(tmp_path / "cache")
    assert program.read_text() == "program\n"
    assert told[0] == f"building Kubernetes {KUBERNETES}, etcd and kwok from Go modules (first run only)"
    assert told[-1].startswith("built in ")
    assert [file.name for file in program.parent.iterdir()] == ["controlplane"]
    (tmp_path / "module" / "main.go").write_text("package main\n")
    assert built(tmp_path / "cache") != program


def test_progress_counts_packages_to_compile(
    tmp_path: Path, compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "INTERVAL", 0.05)
    compiler(
        "echo a/one; echo of/another",
        f"while [ ! -e {tmp_path}/seen ]; do sleep 0.05; done",
        'echo > "${target}controlplane"',
    )
    told: list[str] = []

    def report(line: str) -> None:
        told.append(line)
        if "1 of 2" in line:
            (tmp_path / "seen").touch()

    build(tmp_path / "cache", report)
    assert any(re.fullmatch(r"compiling: 1 of 2 packages, about \d+ s left", line) for line in told)


REJECTED = "a.go:3:2: example.com/apis@v1.15.0: reading https://proxy.test/example.com/apis/@v/v1.15.0.zip: 403 No"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (("kill -TERM $$",), "the build was killed by signal 15; run the same command again to continue"),
        ((f"for i in 1 2 3; do echo '{REJECTED}' >&2; echo '  server response: none' >&2; done; exit 1",),
         r"kwok failed\. Go module example\.com/apis@v1\.15\.0 cannot be downloaded: 403 No; see the"),
        (("echo undefined: x >&2", 'echo half > "${target}controlplane"', "exit 1"),
         r"building Kubernetes .*, etcd and kwok failed\. Last log lines:\nundefined: x; see the full log"),
    ],
    ids=["killed", "a module that the proxy rejects", "an error of the compiler"],
)  # fmt: skip
def test_failed_build_is_explained_and_leaves_no_program(
    lines: tuple[str, ...], message: str, tmp_path: Path, compiler: Compiler
) -> None:
    compiler(*lines)
    with pytest.raises(ConsoleError, match=message) as refused:
        build(tmp_path / "cache", quiet)
    (log,) = (tmp_path / "cache" / "programs").glob("controlplane-*/*")
    assert "full log" not in message or (str(log) in str(refused.value) and log.read_text() == "undefined: x\n")


def test_an_unreadable_module_is_reported_with_gos_message(tmp_path: Path, compiler: Compiler) -> None:
    compiler()
    a_program(tmp_path / "bin", "go", 'if [ "$1" = env ]; then echo go1.26.0; exit; fi',
              "echo 'dial tcp: no such host' >&2; exit 1")  # fmt: skip
    with pytest.raises(ConsoleError, match="Last log lines:\ndial tcp: no such host"):
        build(tmp_path / "cache", quiet)


def test_full_disk_is_one_line_and_the_next_build_succeeds(tmp_path: Path, compiler: Compiler) -> None:
    compiler("echo 'a/one: write /x: no space left on device' >&2", "echo more of it >&2", "exit 1")
    with pytest.raises(ConsoleError, match=r"disk full: a/one: write /x: no space left on device; free 4 GB"):
        build(tmp_path / "cache", quiet)
    compiler('echo program > "${target}controlplane"')
    build(tmp_path / "cache", quiet)
    assert built(tmp_path / "cache").is_file()


def test_builds_several_programs_with_one_command(tmp_path: Path, compiler: Compiler) -> None:
    compiler('echo "$@" > "${target}arguments"', 'for one in queue run; do echo $one > "$target$one"; done')
    build(tmp_path / "cache", quiet, {"kueue": "example.com/cmd/queue", "trainer": "example.com/run/v2"}, what="two")
    assert built(tmp_path / "cache", "kueue").read_text() == "queue\n"
    assert built(tmp_path / "cache", "trainer").read_text() == "run\n"
    assert not built(tmp_path / "cache").exists()


def test_a_program_that_is_built_again_leaves_the_others(tmp_path: Path, compiler: Compiler) -> None:
    compiler('echo first > "${target}controlplane"')
    build(tmp_path / "cache", quiet)
    compiler('echo second > "${target}queue"')
    build(tmp_path / "cache", quiet, {"kueue": "example.com/cmd/queue"}, what="one")
    assert built(tmp_path / "cache").read_text() == "first\n"
