"""What the command prints is text: neither a terminal nor the log of a pipeline obeys it."""

import io
import re
from pathlib import Path

import pytest
from builders import Data
from cli_builders import Project, small, tenancy
from hypothesis import example, given
from hypothesis import strategies as st
from rich.markup import escape
from rich.table import Table
from rich.text import Text
from typer.testing import Result

from gpu_tenancy.base import terminal
from gpu_tenancy.base.characters import hidden
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.output import Output, as_text
from gpu_tenancy.cluster.answers import Answer, Check
from gpu_tenancy.cluster.demand import read_demands
from gpu_tenancy.engine.render import Rendered
from gpu_tenancy.explain.fit import Fitting
from gpu_tenancy.explain.show import fitting
from gpu_tenancy.gitops.changed import listed
from gpu_tenancy.model.project import existing_stacks, read_stack
from gpu_tenancy.packs.configuration import read_config
from gpu_tenancy.pages.templating import environment
from gpu_tenancy.review.build import read_real
from gpu_tenancy.review.comment_markdown import code, text

COMMAND = re.compile(r"^\s*::|##\[|##vso\[|##teamcity\[", re.MULTILINE)


def printed(*renderables: object, width: int = 80) -> str:
    """What an output writes to a file."""
    output = Output(width=width)
    output.file = file = io.StringIO()
    for renderable in renderables:
        output.print(renderable, highlight=False)
    return file.getvalue()


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("\x1b[2J\x1b[31mred", r"\x1b[2J\x1b[31mred"),
        ("a\x9b31mb", r"a\x9b31mb"),
        ("pay\u202eeht", r"pay\u202eeht"),
        ("::error title=x::boo", r":\x3aerror title=x::boo"),
        ("one\n  ::stop-commands::t", "one\n  :\\x3astop-commands::t"),
        ("see ##[error]boo", r"see ##\x5berror]boo"),
        ("##vso[task.setvariable]x", r"#\x23vso[task.setvariable]x"),
        ("[red]literal[/red] [link=https://example.com]x[/link] :warning:",) * 2,
        ("größe 日本語 \U0001f469\u200d\U0001f4bb a::b fd00::1",) * 2,
    ],
)
def test_a_value_is_printed_as_text(value: str, shown: str) -> None:
    assert printed(escape(value), Text(value)) == f"{shown}\n{shown}\n"


def test_a_value_in_a_table_is_printed_as_text_too() -> None:
    cells = terminal.table("name", "state")
    cells.add_row("[red]x[/red] :key:", Text("OK", style="green"))
    cells.add_row("\x1b[2J", "::error::")
    _, first, second = printed(cells, width=120).splitlines()
    assert first.split() == ["[red]x[/red]", ":key:", "OK"]
    assert second.split() == [r"\x1b[2J", "::error::"]


def test_styles_of_this_program_still_work() -> None:
    output = Output(width=80)
    output.file, output.record = io.StringIO(), True
    output.print("[red]error:[/red] x", highlight=False)
    assert output.export_text(styles=True) == "\x1b[31merror:\x1b[0m x\n"


@example([":", ":error::x"], 80)
@example(["a\n", " :", ":x"], 80)
@given(
    st.lists(st.sampled_from([":", "::", "error", "\n", " ", "##", "[", "\x1b[2J", "x", "\u2028", "\r"]), max_size=12),
    st.integers(1, 12),
)
def test_no_text_is_a_command_however_it_is_split_into_parts_and_lines(parts: list[str], width: int) -> None:
    cells = Table.grid()
    cells.add_row(Text("".join(parts)))
    for line in printed(
        Text.assemble(*((part, "bold" if number % 2 else "") for number, part in enumerate(parts))), cells, width=width
    ).split("\n"):
        assert not COMMAND.search(line)
        assert not hidden(line)


@pytest.mark.slow
@given(st.text())
def test_text_that_was_escaped_is_not_escaped_again(value: str) -> None:
    assert as_text(as_text(value)) == as_text(value)


# Errors of a stack.


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project.at(tmp_path / "project")


def validated(project: Project, sections: Data) -> Result:
    project.write("s", sections)
    return tenancy("stack", "validate", "s", project=project.folder)


@pytest.mark.parametrize("owner", ["o\n::error::boo", "\x1b[31mred", "##[error]boo", "[red]boo[/red]"])
def test_an_error_shows_the_value_escaped(project: Project, owner: str) -> None:
    sections = small()
    sections["teams"]["vision"]["owner"] = owner
    seen = validated(project, sections)
    assert seen.exit_code == 1
    assert not COMMAND.search(seen.stderr)
    assert not hidden(seen.stderr, "\n")
    first, _ = seen.stderr.splitlines()
    assert re.match(r"stacks/Pulumi\.s\.yaml:\d+: teams\.vision\.owner: .*(boo|red)", first)


# Names of stacks.


@pytest.mark.parametrize("name", ["a\n::error::x", "..", "-x", "a b", "ä", "x" * 101])
def test_a_file_whose_name_is_not_one_of_a_stack_is_refused(project: Project, name: str) -> None:
    if len(name) < 100:
        (project.folder / "stacks" / f"Pulumi.{name}.yaml").write_text("", encoding="utf-8")
        with pytest.raises(ConsoleError, match="is not a valid name; use at most 100 letters, digits"):
            existing_stacks(project.folder)
    with pytest.raises(ConsoleError, match="is not a valid name"):
        read_stack(name, project.folder)


@pytest.mark.parametrize("name", ["dev", "prod-aws", "team_1.eu", "1", "x" * 100])
def test_a_name_of_a_stack_is_allowed(project: Project, name: str) -> None:
    project.write(name, small())
    assert existing_stacks(project.folder) == [name]


# Other inputs.

DEEP = "[" * 100_000
BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(("content", "reason"), [(DEEP, "nested too deeply"), (f'{{"a": {"9" * 5000}}}', "characters")])
def test_a_policy_configuration_has_bounds(tmp_path: Path, content: str, reason: str) -> None:
    file = tmp_path / "own.json"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(ConsoleError, match=f"own.json: not valid JSON: .*{reason}"):
        read_config(file)
    file.write_text('{"rule": {"names": ["\\u001b[2J"]}}', encoding="utf-8")
    with pytest.raises(
        ConsoleError, match=r"own.json: rule.names\[0\]: contains the invisible character U\+001B; remove"
    ):
        read_config(file)


@pytest.mark.parametrize("content", [DEEP, '{"steps": [NaN]}', f'{{"steps": [{"9" * 5000}]}}'])
def test_a_preview_of_pulumi_has_bounds(tmp_path: Path, content: str) -> None:
    file = tmp_path / "preview.json"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(ConsoleError, match=r"preview\.json: not valid JSON"):
        read_real(file, Rendered("p", "s", (), {}), None, ())


def test_a_list_of_stacks_has_bounds() -> None:
    with pytest.raises(ConsoleError, match=r"--among: .* is not a JSON list"):
        listed(DEEP)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (BOMB, "has more than 200,000 values with those of aliases"),
        ("kind: &k [*k]", "alias .* is inside the value of its anchor"),
        (DEEP, "is nested deeper than 50 levels"),
        ('kind: "\\e[2J"', "kind: contains the invisible character U+001B"),
        ("kind: !!binary aGk=", "kind: has the tag"),
        ("kind: Pod\nkind: Job", "kind: duplicate key, first set on line 1"),
    ],
)
def test_a_manifest_has_bounds(tmp_path: Path, content: str, reason: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(ConsoleError) as caught:
        read_demands(file, "vision")
    assert re.search(reason.replace("+", r"\+"), str(caught.value))
    assert not hidden(str(caught.value))


def test_a_label_named_like_a_secret_is_a_label(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(
        "{apiVersion: v1, kind: Pod, metadata: {name: p, labels: {secure: 'yes'}}, spec: {}}", encoding="utf-8"
    )
    [demand] = read_demands(file, "vision")
    assert demand.templates[0].labels == {"secure": "yes"}


# Reports.


def test_a_message_of_a_cluster_is_one_line() -> None:
    answer = Answer(Check.API_SERVER, "never", ("rejects it: no\nerror: everything is fine", "\x1b[2J"))
    shown = printed(fitting(Fitting("Job x\n::error::x", "1 GPU", (answer,))), width=200)
    assert r"rejects it: no\nerror: everything is fine" in shown
    assert r"Job x\n::error::x" in shown
    assert not hidden(shown, "\n")


def test_invisible_characters_are_shown() -> None:
    assert text("main\u202egnp\x1b[2J") == r"main\\u202egnp\\x1b\[2J"
    assert code("a\u200bb") == "<code>a&#92;u200bb</code>"
    page = environment().from_string("{{ value }}{{ '<b>' }}{{ number }}")
    assert page.render(value="pay\u202e\n<x>", number=3) == "pay\\u202e\n&lt;x&gt;&lt;b&gt;3"
