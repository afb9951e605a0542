"""Tables on a terminal of 80 and of 60 columns: no line is longer, no name is broken; elsewhere nothing is left out."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import typer
import yaml
from cli_builders import Project, Screen, git, small, tenancy
from repository import ROOT

from gpu_tenancy.base import terminal
from gpu_tenancy.base.output import command
from gpu_tenancy.doctor.results import Row, conclude
from gpu_tenancy.embedded.platform import PartStatus, Platform

LONG = "large-language-model-research"
COMMANDS = [
    "catalogue clouds",
    "catalogue machines",
    "stack validate",
    "stack explain ml-research --stack local",
    "access who-can create pods/exec --stack local",
    "whatif local",
    "local demo example-three-teams",
    "preview local",
    "size local --flavor l4 --rate 10000/s --per-replica 220/s --latency 100ms",
]
WIDE = "catalogue machines"


def on_a_terminal(line: str, width: int, monkeypatch: pytest.MonkeyPatch) -> Screen:
    """What a command prints on a terminal."""
    screen = Screen.of(width)
    with monkeypatch.context() as patched:
        patched.setattr(terminal, "out", screen.output)
        assert tenancy(*line.split(), project=ROOT if "catalogue" not in line else None).exit_code == 0
    return screen


def words(lines: list[str]) -> Iterator[str]:
    for line in lines:
        yield from re.findall(r"[\w./:-]+", line)


@pytest.mark.slow
@pytest.mark.parametrize("width", [80, 60])
@pytest.mark.parametrize("line", COMMANDS)
def test_no_line_is_longer_than_the_terminal_and_no_word_is_broken(
    line: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = on_a_terminal(line, width, monkeypatch).lines
    # Only a URL or a path alone may be longer.
    assert [text for text in shown if len(text.rstrip()) > width and " " in text.strip()] == []
    whole = set(words(tenancy(*line.split(), project=ROOT if "catalogue" not in line else None).stdout.splitlines()))
    own = {"not", "shown", "because", "the", "terminal", "is", "narrow:"}
    headings = {heading for text in shown if text.startswith("not shown") for heading in words([text])}
    assert set(words(shown)) - whole - own - headings == set()


def test_a_long_name_is_whole_where_only_a_line_for_each_column_fits(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Project.at(tmp_path_factory.mktemp("long"))
    sections = small()
    sections["teams"] = {LONG: next(iter(sections["teams"].values()))}
    project.write("good", sections)
    screen = Screen.of(40)
    monkeypatch.setattr(terminal, "out", screen.output)
    assert tenancy("whatif", "good", project=project.folder).exit_code == 0
    assert {"team", LONG} <= {text.strip() for text in screen.lines}
    assert max(map(len, screen.lines)) <= 40


def test_wide_and_a_pipe_have_every_column(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow, wide = (on_a_terminal(f"{WIDE}{more}", 80, monkeypatch).lines for more in ("", " -o wide"))
    piped = tenancy(*WIDE.split()).stdout.splitlines()
    assert ("fabric" in narrow[0], "fabric" in wide[0], "fabric" in piped[0]) == (False, True, True)
    assert [text.rstrip() for text in wide] == [*(text.rstrip() for text in piped), ""]


def test_the_forms_for_programs_have_the_same_answer() -> None:
    made = {form: tenancy("catalogue", "machines", "-o", form).stdout for form in ("json", "yaml", "name")}
    rows = json.loads(made["json"])
    assert (yaml.safe_load(made["yaml"]), made["name"].split()) == (rows, [row["machine"] for row in rows])
    assert tenancy("catalogue", "machines", "--json").stdout == made["json"]


def test_machines_are_values_with_their_unit_in_the_key_for_programs() -> None:
    rows = {row["machine"]: row for row in json.loads(tenancy("catalogue", "machines", "-o", "json").stdout)}
    machine = rows["p5.48xlarge"]
    assert (machine["gpu"], machine["gpus"], machine["gpu_memory_bytes"]) == ("h100-80gb", 8, 80 * 2**30)
    assert (machine["cpus"], machine["memory_bytes"]) == (192, 2048 * 2**30)
    assert 0 < machine["allocatable_cpus"] < 192
    assert 0 < machine["allocatable_memory_bytes"] < machine["memory_bytes"]
    assert isinstance(machine["usd_per_hour"], float)
    assert {type(row["usd_per_hour_spot"]) for row in rows.values()} <= {float, type(None)}
    assert (rows["m7i.8xlarge"]["gpu"], rows["m7i.8xlarge"]["gpu_memory_bytes"]) == (None, None)


@pytest.mark.parametrize("words", [["--help"], ["usage", "--help"], ["access", "who-can", "--help"]])
def test_help_shows_no_type_where_an_option_has_no_value(words: list[str]) -> None:
    seen = tenancy(*words)
    assert (seen.exit_code, "<bool>" in seen.stdout, "--help" in seen.stdout) == (0, False, True)


# Commands that ask a cluster, a cloud or the platform of this machine.

ROWS = [
    Row("provider", "Microsoft.ContainerService", "registered", "NotRegistered", "missing", "run `az provider x`"),
    Row("quota", "Standard NDASv4_A100 Family vCPUs", "1,152 vCPUs", "96 vCPUs, 0 in use", "unknown", "raise it"),
]


def doctor() -> None:
    with pytest.raises(typer.Exit):
        conclude(ROWS, None)


def status() -> None:
    tenancy("local", "status")


@pytest.mark.parametrize("width", [80, 60])
@pytest.mark.parametrize("show", [doctor, status])
def test_what_others_answer_fits_and_no_word_is_broken(
    show: Callable[[], None], width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [PartStatus("kube-controller-manager", 4194304), PartStatus("etcd", None)]

    def statuses(_: Platform) -> list[PartStatus]:
        return parts

    monkeypatch.setattr(Platform, "status", statuses)
    screen, wide = Screen.of(width), Screen.of(240)
    for one in (screen, wide):
        monkeypatch.setattr(terminal, "out", one.output)
        show()
    assert screen.words
    assert (screen.too_long, screen.words - wide.words) == ([], set())


@pytest.mark.process
def test_names_of_changed_stacks_are_never_wrapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = Project.at(tmp_path / "project")
    git(project.folder, "init", "--quiet")
    git(project.folder, "add", "--all")
    git(project.folder, "commit", "--quiet", "--message", "first")
    name = "production-of-language-models-in-europe-west4-with-a-long-name"
    project.write(name, small())
    monkeypatch.setattr(terminal, "out", Screen.of(60).output)
    assert tenancy("stack", "changed", "--base", "HEAD", project=project.folder).stdout == f"{name}\n"


def test_a_line_with_a_command_is_whole() -> None:
    line = "  tenancy fit ml-research -f out/local/job.yaml --embedded"
    assert Screen.of(20, command(line)).lines == [line, ""]


def test_lines_after_the_first_one_are_below_its_text() -> None:
    assert Screen.of(12, "✓ one two three", "· one two three", "  one two three").lines == [
        *("✓ one two", "  three", "· one two", "  three", "  one two", "  three", ""),
    ]
