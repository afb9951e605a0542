"""Output: escaped control characters, error messages, progress, tables that fit narrow terminals, written files."""

import errno
import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
import typer
import yaml
from builders import Data
from cli_builders import Project, Screen, git, small, tenancy
from hypothesis import example, given
from hypothesis import strategies as st
from repository import ROOT
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text
from typer.testing import Result

from gpu_tenancy.base import progress, terminal
from gpu_tenancy.base.errors import SPACE, ConsoleError
from gpu_tenancy.base.output import Output, as_text, command, write_private, write_text
from gpu_tenancy.base.progress import measured
from gpu_tenancy.base.texts import hidden
from gpu_tenancy.cluster import contexts
from gpu_tenancy.cluster.demand import read_demands
from gpu_tenancy.cluster.reading import Answer, Check
from gpu_tenancy.doctor.results import Row, conclude
from gpu_tenancy.embedded.platform import PartStatus, Platform
from gpu_tenancy.engine.render import Rendered
from gpu_tenancy.explain.fit import Fitting
from gpu_tenancy.explain.show import fitting
from gpu_tenancy.model.project import existing_stacks, read_stack
from gpu_tenancy.packs.configuration import read_config
from gpu_tenancy.pages.tables import environment
from gpu_tenancy.review.build import read_real
from gpu_tenancy.review.comment import code, text

COMMAND = re.compile(r"^\s*::|##\[|##vso\[|##teamcity\[", re.MULTILINE)


def printed(*renderables: object, width: int = 80) -> str:
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
def test_text_is_no_command_however_it_is_split(parts: list[str], width: int) -> None:
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


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (ConsoleError("x is not a folder", "specify one"), 1, "error: x is not a folder; specify one"),
        (OSError(errno.EACCES, "Permission denied", "/x"), 1, f"error: /x: Permission denied; {terminal.WRITABLE}"),
        (OSError(errno.ENOSPC, "No space left"), 1, f"error: a file: No space left; {SPACE}"),
        (OSError(errno.ENOENT, "No such file", "/proc/x"), 1, "error: /proc/x: No such file; specify another one"),
        (FileExistsError("x is not ours; move it"), 1, "error: x is not ours; move it"),
        (KeyboardInterrupt(), 130, "interrupted; run the same command again to continue"),
    ],
)
def test_file_errors_are_one_line_with_a_fix(
    error: BaseException, code: int, words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "err", Output(stderr=True))
    with pytest.raises(typer.Exit) as ended, terminal.errors():
        raise error
    assert (ended.value.exit_code, capsys.readouterr().err) == (code, f"{words}\n")


def test_an_interrupted_question_has_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contexts, "connect", Mock(side_effect=KeyboardInterrupt))
    assert tenancy("claims", "a", "--kubeconfig", "nowhere").exit_code == terminal.ExitCode.INTERRUPTED


def test_passes_on_errors_that_no_user_can_fix() -> None:
    with pytest.raises(OSError, match="bad descriptor"), terminal.errors():
        raise OSError(errno.EBADF, "bad descriptor")


@pytest.mark.parametrize(
    ("done", "seconds", "words"),
    [
        (0, 15, "compiling: 0 of 2,000 packages"),
        (500, 60, "compiling: 500 of 2,000 packages, about 3 min left"),
        (1500, 60, "compiling: 1,500 of 2,000 packages, about 20 s left"),
        (2000, 60, "compiling: 2,000 of 2,000 packages"),
    ],
)
def test_progress_shows_done_and_remaining_time(done: int, seconds: float, words: str) -> None:
    assert progress.line("compiling", done, 2000, "packages", seconds) == words


def test_without_a_terminal_there_is_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "INTERVAL", 0.01)
    told: list[str] = []
    with measured(told.append, "compiling", 3, "packages") as advance:
        advance(2)
        while not any("2 of 3" in words for words in told):
            pass
    assert told
    assert set(told) <= {"compiling: 0 of 3 packages", "compiling: 2 of 3 packages, about 0 s left"}


def test_on_a_terminal_a_bar_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setenv("TERM", "xterm")  # nothing is drawn on a dumb terminal
    monkeypatch.setattr(terminal, "err", Console(file=screen, force_terminal=True, width=120))
    with measured(terminal.Drawn(), "compiling", 2000, "packages") as advance:
        advance(1500)
    assert re.search(r"compiling.*1,500 of 2,000 packages", screen.getvalue())


LONG = "large-language-model-research"
COMMANDS = [
    "catalogue machines",
    "stack validate",
    "stack explain ml-research --stack local",
    "access who-can create pods/exec --stack local",
    "whatif local",
    "local demo example-three-teams",
    "preview local",
]
WIDE = "catalogue machines"


def on_a_terminal(line: str, width: int, monkeypatch: pytest.MonkeyPatch) -> Screen:
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
def test_lines_fit_the_terminal_and_words_are_whole(line: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = on_a_terminal(line, width, monkeypatch).lines
    # Only a URL or a path alone may be longer.
    assert [text for text in shown if len(text.rstrip()) > width and " " in text.strip()] == []
    whole = set(words(tenancy(*line.split(), project=ROOT if "catalogue" not in line else None).stdout.splitlines()))
    own = {"not", "shown", "because", "the", "terminal", "is", "narrow:"}
    headings = {heading for text in shown if text.startswith("not shown") for heading in words([text])}
    assert set(words(shown)) - whole - own - headings == set()


def test_long_name_is_whole_with_one_line_per_column(
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
    assert (yaml.load(made["yaml"], Loader=yaml.CSafeLoader), made["name"].split()) == (
        rows,
        [row["machine"] for row in rows],
    )
    assert tenancy("catalogue", "machines", "--json").stdout == made["json"]


def test_machines_have_units_in_keys_for_programs() -> None:
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
        *("✓ one two", "  three", "· one two", "  three", "  one two", "  three", "")
    ]


FULL = Path("/dev/full")  # a device of Linux without space, which is not a regular file


def test_a_file_and_its_folders_are_made(tmp_path: Path) -> None:
    file = tmp_path / "a" / "b" / "file"
    write_text(file, "first\n")
    write_text(file, "second\n")
    assert file.read_bytes() == b"second\n"
    assert list(file.parent.iterdir()) == [file]


def test_failed_write_keeps_earlier_content(tmp_path: Path) -> None:
    file = tmp_path / "stack.yaml"
    write_text(file, "earlier")
    with pytest.raises(UnicodeEncodeError):
        write_text(file, "x" * 100_000 + "\ud800")
    assert file.read_text() == "earlier"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")
def test_a_full_device_is_named_and_not_replaced() -> None:
    with pytest.raises(OSError, match="No space left on device: '/dev/full'") as failed:
        write_text(FULL, "text")
    assert failed.value.errno == errno.ENOSPC
    assert FULL.is_char_device()


def test_a_link_and_the_mode_of_a_file_stay(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("earlier")
    file.chmod(0o640)
    link.symlink_to(file)
    write_text(link, "text")
    assert (link.is_symlink(), file.read_text(), file.stat().st_mode & 0o777) == (True, "text", 0o640)


def test_new_file_has_usual_mode_and_private_file_0600(tmp_path: Path) -> None:
    usual = tmp_path / "usual"
    usual.touch()
    plain, private = tmp_path / "plain", tmp_path / "folder" / "private"
    write_text(plain, "text")
    write_private(private, "text")
    assert plain.stat().st_mode == usual.stat().st_mode
    assert (private.stat().st_mode & 0o777, private.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_an_open_private_file_is_closed_to_others(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text("earlier")
    file.chmod(0o644)
    write_private(file, "text")
    assert file.stat().st_mode & 0o777 == 0o600
