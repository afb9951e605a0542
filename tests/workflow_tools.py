"""Tools for tests of workflows: actionlint, the scripts in workflows, and the command lines in scripts."""

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import yaml
from repository import ROOT
from starts import GUARD

from gpu_tenancy.base.progress import Report
from gpu_tenancy.embedded.building import find_go
from gpu_tenancy.embedded.platform import Platform

FOLDER: Final = ROOT / ".github/workflows"
WORKFLOWS: Final = sorted(file.name for file in FOLDER.glob("*.yaml"))
ACTION: Final = ROOT / "action.yml"
_ACTIONLINT: Final = "v1.7.12"
_GO: Final = (1, 24)
_ENDS: Final = re.compile(r"[|&;<>()]+|do|then")


def workflow(name: str) -> Any:
    """A workflow as data; its `on` under `true`, by YAML 1.1."""
    return yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))


def steps(name: str) -> Iterator[tuple[str, Any]]:
    """Each step of a workflow, with its job; of `action.yml`, with none."""
    if name == ACTION.name:
        yield from (("", step) for step in yaml.safe_load(ACTION.read_text(encoding="utf-8"))["runs"]["steps"])
        return
    for job, content in workflow(name)["jobs"].items():
        yield from ((job, step) for step in content.get("steps", ()))


def script(name: str, step: str) -> str:
    (found,) = (each["run"] for _, each in steps(name) if each.get("name") == step)
    return found


def gitlab() -> str:
    """The block of `.gitlab-ci.yml` in the page on pull requests."""
    page = (ROOT / "docs/pull-requests.md").read_text(encoding="utf-8")
    (found,) = re.findall(r"^```yaml\n# \.gitlab-ci\.yml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return found


def actionlint(report: Report) -> Path:
    """Actionlint, built once into the cache from its pinned Go module."""
    cache = Platform(Path(os.devnull)).cache
    kept = cache / f"actionlint-{_ACTIONLINT}" / "actionlint"
    if kept.is_file():
        return kept
    report(f"building actionlint {_ACTIONLINT} from its Go module: once")
    kept.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=kept.parent) as folder:
        go = find_go(_GO, cache, report)
        go = replace(go, environment={**go.environment, "GOBIN": folder, "GOFLAGS": ""})
        done = go.output("install", f"github.com/rhysd/actionlint/cmd/actionlint@{_ACTIONLINT}", folder=Path(folder))
        if done.returncode:
            raise RuntimeError(done.stderr)
        (Path(folder) / "actionlint").replace(kept)
    return kept


def commands(text: str) -> list[list[str]]:
    """Each command line of `tenancy` in a shell's text, without its redirections; arrays of words are expanded."""
    text = re.sub(r"\\\n\s*", " ", text)
    arrays: dict[str, list[str]] = {}
    for found_array in re.finditer(r"^\s*(\w+)\+?=\(([^)]*)\)", text, re.MULTILINE):
        arrays.setdefault(found_array[1], []).extend(shlex.split(found_array[2]))
    found: list[list[str]] = []
    for line in re.findall(r"(?:^|[\s`(])(?:\"\$TENANCY\"|(?:\.venv/bin/)?tenancy) ([a-z]+[^\n`]*)", text):
        words: list[str] = []
        lexer = shlex.shlex(re.sub(r"\s2>.*", "", line), posix=True, punctuation_chars="|&;<>()")
        lexer.whitespace_split = True
        for word in lexer:
            if _ENDS.fullmatch(word):
                break
            array = re.fullmatch(r"\$\{(\w+)\[@\]\}", word)
            words += arrays[array[1]] if array else [word]
        found.append(words)
    return found


def run(program: Path, *arguments: object, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    words = [str(program), *map(str, arguments)]
    return subprocess.run(words, cwd=cwd, check=False, capture_output=True, text=True, timeout=GUARD)


def run_script(
    text: str, folder: Path, environment: dict[str, str], *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Runs a step as GitHub does, by bash, with only the given environment and the PATH."""
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", text, "step", *arguments],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), **environment},
        check=False,
        capture_output=True,
        text=True,
        timeout=GUARD,
    )
