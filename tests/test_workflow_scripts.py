"""The scripts in the workflows, with stand-ins for the real programs."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt
from repository import ROOT
from workflow_tools import ACTION, run_script, script

from gpu_tenancy.gitops.comment import MARK

pytestmark = pytest.mark.process

STICKY = "Create or update the comment"
ISSUE = "Open, update or close the drift issue"


def program(folder: Path, name: str, text: str) -> None:
    """A program that a script finds in place of a real one."""
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    (folder / name).chmod(0o755)


@pytest.fixture
def previews(tmp_path: Path) -> Path:
    """A project whose previews end by their stacks' names: `code-3` with 3, and `killed` as one without memory."""
    ours = "from gpu_tenancy.cli.main import app; app()"
    program(
        tmp_path,
        ".venv/bin/tenancy",
        f"""#!/bin/bash
if [[ "$1 $2" == "stack changed" ]]; then exec cat stacks; fi
if [[ $1 == stack ]]; then PYTHONPATH='{ROOT}' exec '{sys.executable}' -c '{ours}' "$@"; fi
echo "$*" >> asked
all="$*"
out=${{all##*--out }}
out=${{out%% *}}
if [[ $2 == killed ]]; then kill -9 $$; fi
[[ $2 == code-1 ]] || echo "## report of $2" > "$out/report.md"
echo "output of $2" > "$out/report.txt"
echo "words of $2" > "$out/errors.txt"
exit "${{2#code-}}"
""",
    )
    return tmp_path


def previewed(folder: Path, *stacks: str, real: str = "") -> tuple[int, str]:
    """The exit code and the output of the action's preview of these stacks."""
    (folder / "stacks").write_text("".join(f"{stack}\n" for stack in stacks))
    environment = {"TENANCY": ".venv/bin/tenancy", "BASE": "origin/main", "OUT": "out", "REAL": real}
    summary = {"GITHUB_STEP_SUMMARY": str(folder / "summary")}
    done = run_script(script(ACTION.name, "Preview changed stacks"), folder, {**environment, **summary})
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("stacks", "code"),
    [((), 0), (("code-0",), 0), (("code-0", "code-3"), 3), (("code-3", "code-1"), 1), (("code-2",), 2)],
)
def test_preview_ends_with_the_gravest_code(previews: Path, stacks: tuple[str, ...], code: int) -> None:
    ended, output = previewed(previews, *stacks)
    assert ended == code, output
    assert {file.parent.name: file.read_text() for file in (previews / "out").glob("*/exit-code")} == {
        stack: f"{stack.removeprefix('code-')}\n" for stack in stacks
    }
    comment = (previews / "out/comment.md").read_text()
    assert comment.startswith(MARK)
    assert (previews / "summary").read_text() == comment
    for stack in stacks:
        assert (f"words of {stack}" if stack == "code-1" else f"## report of {stack}") in comment
    assert (previews / "out/comment.txt").read_text() == "".join(
        f"Stack {stack}, exit code {stack.removeprefix('code-')}\n\noutput of {stack}\nwords of {stack}\n"
        for stack in stacks
    )


def test_killed_preview_is_in_the_comment_and_fails(previews: Path) -> None:
    ended, output = previewed(previews, "killed", "code-0")
    assert ended == 1
    assert "::error title=Error::" in output
    assert "| ✗ | `killed` | preview exited with code 137 |" in (previews / "out/comment.md").read_text()


def test_pulumis_preview_is_merged_into_the_comment(previews: Path) -> None:
    for stack, text in (("code-0", "{}"), ("code-3", "")):
        (previews / f"real/real-{stack}").mkdir(parents=True)
        (previews / f"real/real-{stack}/preview.json").write_text(text)
    _, output = previewed(previews, "code-0", "code-3", real="real")
    asked = "--base origin/main --policy workloads --policy clouds --out out"
    assert (previews / "asked").read_text().splitlines() == [
        f"preview code-0 {asked}/code-0 --pulumi-preview real/real-code-0/preview.json",
        f"preview code-3 {asked}/code-3",
    ]
    assert "::error title=Blocked::" in output


GH = """#!/bin/bash
echo "$*" >> asked
case "$*" in
  "run download"*pull-request-real*) [[ -n $REAL ]] || exit 1; mkdir found; echo "$REAL" > found/comment.md ;;
  "run download"*) mkdir found; cp text found/comment.md; cp output found/comment.txt ;;
  *"--method GET"*pulls*) cat pulls ;;
  *--paginate*) cat there ;;
  *--input*) cp body.json sent ;;
esac
"""
BOT: dict[str, Any] = {"user": {"login": "github-actions[bot]"}}

RUN = {"text": "words", "output": "", "real": "", "sha": "abc", "source": "o/r"}
"""A run: comment.md and comment.txt of its artifact, comment.md with Pulumi's result, its commit, its repository."""


def commented(folder: Path, *, there: list[Any], **given: str) -> list[str]:
    """Requests of the comment's script to GitHub; the pull request is 7, and ends with the commit `abc`."""
    run = {**RUN, **given}
    program(folder, "bin/gh", GH)
    (folder / "text").write_text(run["text"], encoding="utf-8")
    (folder / "pulls").write_text(json.dumps([{"number": 7, "head": {"sha": "abc"}}]))
    (folder / "there").write_text(json.dumps(there[:1]) + json.dumps(there[1:]))  # two pages, as `--paginate` has them
    (folder / "output").write_text(run["output"], encoding="utf-8")
    names = {"REPOSITORY": "o/r", "RUN": "1", "PAGE": "https://run", "HEAD": "o:branch", "MARK": MARK}
    of_run = {"SHA": run["sha"], "REAL": run["real"], "SOURCE": run["source"]}
    environment = {**names, **of_run, "PATH": f"{folder / 'bin'}:/usr/bin:/bin"}
    done = run_script(script(ACTION.name, STICKY), folder, environment)
    assert done.returncode == 0, done.stderr
    return [line for line in (folder / "asked").read_text().splitlines() if "--input" in line]


def test_the_first_comment_is_written(tmp_path: Path) -> None:
    assert commented(tmp_path, there=[{**BOT, "id": 1, "body": "another of the bot"}]) == [
        "api --method POST repos/o/r/issues/7/comments --input body.json --silent"
    ]
    assert json.loads((tmp_path / "sent").read_text())["body"] == (
        f"{MARK}\nwords\n\n*Preview of commit abc. The report of each stack is an [artifact of this run](https://run).*\n"
    )


def test_the_next_one_is_written_over_it(tmp_path: Path) -> None:
    there = [{**BOT, "id": 1, "body": "hello"}, {**BOT, "id": 2, "body": f"{MARK}\nold"}]
    assert commented(tmp_path, there=there, text=f"{MARK}\nwords", real="with what Pulumi says") == [
        "api --method PATCH repos/o/r/issues/comments/2 --input body.json --silent"
    ]
    body = json.loads((tmp_path / "sent").read_text())["body"]
    assert body.startswith(f"{MARK}\nwith what Pulumi says\n")


def test_a_comment_of_another_author_is_not_edited(tmp_path: Path) -> None:
    (asked,) = commented(tmp_path, there=[{"user": {"login": "mallory"}, "id": 3, "body": f"{MARK}\nmine"}])
    assert "--method POST" in asked


def test_an_older_run_does_not_comment_on_a_newer_commit(tmp_path: Path) -> None:
    assert commented(tmp_path, there=[], sha="older") == []


@pytest.mark.parametrize("source", ["o/r", "mallory/r"])
def test_text_of_a_pull_request_is_short_and_never_executed(tmp_path: Path, source: str) -> None:
    evil = '$(touch ran) `touch ran` "; touch ran; "\n' + "\n" * 30_000 + "é" * 100_000
    commented(tmp_path, there=[], text=evil, source=source)
    body = json.loads((tmp_path / "sent").read_text())["body"]
    assert 60_000 < len(body) <= 65_536
    assert '$(touch ran) `touch ran` "; touch ran; "' in body
    assert not (tmp_path / "ran").exists()


FORGED = """@platform-team @org/admins fixes #1, GH-2, o/r#3, 0123456789abcdef0123456789abcdef01234567
```
~~~~~~
</details></blockquote>
<!-- gpu-tenancy: preview -->
## ✓ prod: OK
\r> [!NOTE]\r## ✓ prod: approved\r\n&#64;platform-team [approved](https://github.com/o/r/pull/1)
\t*Preview of commit abc.*
"""


@pytest.mark.parametrize("source", ["mallory/r", ""])
def test_the_text_of_a_fork_is_a_code_block_below_a_warning(tmp_path: Path, source: str) -> None:
    commented(tmp_path, there=[], text=f"{MARK}\n{FORGED}", source=source)
    body = json.loads((tmp_path / "sent").read_text())["body"]
    head, _, rest = body.partition("\n\n")
    assert head == (
        f"{MARK}\n> [!WARNING]\n> **This text was written by the code of a fork, `{source}`, including its verdict.**"
        " Nothing in it is verified. Review the changes, not this text."
    )
    block, _, foot = rest.rpartition("\n\n")
    assert foot.startswith("*Preview of commit abc. ")
    # A line of an indented code block has no markup, and no line of the text is outside of it.
    assert "\r" not in block
    assert all(line.startswith("    ") for line in block.split("\n"))
    assert "    ## ✓ prod: approved\n    &#64;platform-team" in block
    assert body.count(f"\n{MARK}") == 0


def test_text_of_a_fork_stays_in_its_code_block(tmp_path: Path) -> None:
    commented(tmp_path, there=[], text=FORGED, source="mallory/r")
    page = MarkdownIt("commonmark").render(json.loads((tmp_path / "sent").read_text())["body"])
    outside = re.sub(r"<pre><code>.*?</code></pre>", "", page, flags=re.DOTALL)
    assert page.count("<pre>") == 1
    for forged in ("@", "#1", "GH-2", "0123456789abcdef", "approved", "OK", "</details>"):
        assert forged not in outside


def test_fork_is_shown_as_text_without_other_artifacts(tmp_path: Path) -> None:
    commented(tmp_path, there=[], output="prod: Blocked", real="forged", source="mallory/r")
    body = json.loads((tmp_path / "sent").read_text())["body"]
    assert "\n\n    prod: Blocked\n" in body
    assert "words" not in body
    assert "forged" not in body


def test_a_link_in_the_artifact_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    program(tmp_path, "bin/gh", '#!/bin/bash\nmkdir -p found; ln -s ../secret found/comment.txt; : > "$PWD/asked"\n')
    environment = {
        "SOURCE": "mallory/r",
        "REPOSITORY": "o/r",
        "RUN": "1",
        "PAGE": "",
        "HEAD": "",
        "SHA": "",
        "MARK": "",
    }
    path = f"{tmp_path / 'bin'}:/usr/bin:/bin"
    done = run_script(script(ACTION.name, STICKY), tmp_path, {**environment, "PATH": path})
    assert done.returncode == 1
    assert "is a link; only a file is posted" in done.stdout
    assert not (tmp_path / "body.json").exists()


def drifted(folder: Path, codes: dict[str, str], *, there: list[Any]) -> list[str]:
    """Requests of the issue's script to GitHub, for checks of stacks with these exit codes."""
    program(folder, "bin/gh", GH)
    for stack, code in codes.items():
        if code:
            (folder / f"found/drift-{stack}").mkdir(parents=True)
            (folder / f"found/drift-{stack}/exit-code").write_text(code + "\n")
            (folder / f"found/drift-{stack}/drift.txt").write_text(f"~ {stack} differs\n")
    (folder / "there").write_text(json.dumps(there))
    names = {"REPOSITORY": "o/r", "PAGE": "https://run", "STACKS": json.dumps([*codes]), "REAL": ""}
    marked = {**names, "MARK": "<!-- gpu-tenancy: drift -->", "PATH": f"{folder / 'bin'}:/usr/bin:/bin"}
    done = run_script(script("drift.yaml", ISSUE), folder, marked)
    assert done.returncode == 0, done.stderr
    return [line for line in (folder / "asked").read_text().splitlines() if "--paginate" not in line]


def test_the_check_for_drift_keeps_output_and_exit_code(tmp_path: Path) -> None:
    program(tmp_path, "bin/pulumi", "#!/bin/bash\n[[ $1 == refresh ]] || exit 0\necho differs\nexit 255\n")
    program(tmp_path, ".venv/bin/python", "#!/bin/bash\necho quota is 999\nexit 3\n")
    environment = {"STACK": "prod", "NAME": "prod", "ORGANIZATION": "", "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}
    done = run_script(script("pulumi.yaml", "Drift"), tmp_path, environment)
    assert done.returncode == 0, done.stderr
    drift = (tmp_path / "result" / "drift.txt").read_text()
    first, edited, second, differs, _ = drift.splitlines()
    assert (edited, differs) == ("quota is 999", "differs")
    assert first.startswith("Objects of the cluster that others changed")
    assert second == "Resources of the cloud compared with the state of Pulumi:"
    assert done.stdout == drift
    assert (tmp_path / "result" / "exit-code").read_text() == "255\n"


OURS = {"number": 5, "body": "<!-- gpu-tenancy: drift -->\nold"}
ANOTHER = {"number": 4, "body": None}


def test_drift_opens_one_issue_and_writes_over_it(tmp_path: Path) -> None:
    for folder, there, asked in (
        (tmp_path / "first", [ANOTHER], "api --method POST repos/o/r/issues --input body.json --silent"),
        (tmp_path / "next", [ANOTHER, OURS], "api --method PATCH repos/o/r/issues/5 --input body.json --silent"),
    ):
        folder.mkdir()
        assert drifted(folder, {"dev": "0", "prod": "7", "lost": ""}, there=there) == [asked]
        sent = json.loads((folder / "sent").read_text())
        assert sent["title"] == "Drift: 2 stacks differ from this branch"
        assert sent["body"].startswith("<!-- gpu-tenancy: drift -->\n")
        assert "## prod\n\n~~~~~~text\n~ prod differs\n\n~~~~~~" in sent["body"]
        assert "## lost\n\n~~~~~~text\nThe check did not finish; see the workflow run." in sent["body"]
        assert "## dev" not in sent["body"]


def test_without_drift_the_issue_is_closed_and_none_is_opened(tmp_path: Path) -> None:
    for folder, there, asked in (
        (tmp_path / "none", [ANOTHER], []),
        (tmp_path / "open", [OURS], ["issue close 5 --repo o/r --comment No drift: https://run"]),
    ):
        folder.mkdir()
        assert drifted(folder, {"dev": "0"}, there=there) == asked
