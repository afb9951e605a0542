"""Tables on a terminal of 80 and of 60 columns: no line is longer, no name is broken; elsewhere nothing is left out."""

import io
import json
import re
from collections.abc import Iterator

import pytest
import yaml
from cli_builders import Project, small, tenancy
from repository import ROOT
from rich.text import Text

from gpu_tenancy.base import terminal
from gpu_tenancy.base.output import Output

LONG = "large-language-model-research"
COMMANDS = [
    "catalogue clouds",
    "catalogue machines",
    "stack validate",
    "stack explain ml-research --stack local",
    "access who-can create pods/exec --stack local",
    "access can group:ml-research --stack local",
    "whatif local",
    "local demo example-three-teams",
    "preview local",
]
WIDE = "catalogue machines"


def on_a_terminal(line: str, width: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines that a command prints on a terminal."""
    narrow = Output(width=width, terminal=True)
    narrow.file = file = io.StringIO()
    with monkeypatch.context() as patched:
        patched.setattr(terminal, "out", narrow)
        assert tenancy(*line.split(), project=ROOT if "catalogue" not in line else None).exit_code == 0
    return Text.from_ansi(file.getvalue()).plain.split("\n")


def words(lines: list[str]) -> Iterator[str]:
    for line in lines:
        yield from re.findall(r"[\w./:-]+", line)


@pytest.mark.slow
@pytest.mark.parametrize("width", [80, 60])
@pytest.mark.parametrize("line", COMMANDS)
def test_no_line_is_longer_than_the_terminal_and_no_word_is_broken(
    line: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = on_a_terminal(line, width, monkeypatch)
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
    narrow = Output(width=40, terminal=True)
    narrow.file = file = io.StringIO()
    monkeypatch.setattr(terminal, "out", narrow)
    assert tenancy("whatif", "good", project=project.folder).exit_code == 0
    lines = Text.from_ansi(file.getvalue()).plain.splitlines()
    assert {"team", LONG} <= {text.strip() for text in lines}
    assert max(map(len, lines)) <= 40


def test_wide_and_a_pipe_have_every_column(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow, wide = (on_a_terminal(f"{WIDE}{more}", 80, monkeypatch) for more in ("", " -o wide"))
    piped = tenancy(*WIDE.split()).stdout.splitlines()
    assert ("fabric" in narrow[0], "fabric" in wide[0], "fabric" in piped[0]) == (False, True, True)
    assert [text.rstrip() for text in wide] == [*(text.rstrip() for text in piped), ""]


def test_the_forms_for_programs_have_the_same_answer() -> None:
    made = {form: tenancy("catalogue", "machines", "-o", form).stdout for form in ("json", "yaml", "name")}
    rows = json.loads(made["json"])
    assert (yaml.safe_load(made["yaml"]), made["name"].split()) == (rows, [row["machine"] for row in rows])
    assert tenancy("catalogue", "machines", "--json").stdout == made["json"]
