"""A change of the stack `local`, with the report and the comment of `tenancy preview`."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import markdown
from picture_drawn import run_of
from repository import ROOT

from gpu_tenancy.whatif.page import timeline_page
from gpu_tenancy.whatif.timeline import Timeline

_BEFORE, _AFTER = "a100: {guaranteed: 8, limit: 32}", "a100: {guaranteed: 16, limit: 32}"
_STYLE: Final = Path(__file__).with_name("comment.css").read_text(encoding="utf-8")


def changed(clone: Path) -> tuple[Path, str]:
    """A clone in which a guarantee is raised, compared with its commit: the report's file and the comment's text."""
    subprocess.run(["git", "clone", "--quiet", "--shared", str(ROOT), str(clone)], check=True)
    subprocess.run(["git", "update-ref", "refs/remotes/origin/main", "HEAD"], cwd=clone, check=True)
    stack = clone / "stacks" / "Pulumi.local.yaml"
    text = stack.read_text(encoding="utf-8")
    if _BEFORE not in text:
        msg = f"stacks/Pulumi.local.yaml: {_BEFORE!r} not found; change the picture's edit"
        raise ValueError(msg)
    stack.write_text(text.replace(_BEFORE, _AFTER, 1), encoding="utf-8")
    words = ["preview", "local", "--base", "origin/main", "--policy", "workloads", "--policy", "clouds", "--out", "out"]
    program = "from gpu_tenancy.cli.main import main; main()"
    subprocess.run([sys.executable, "-c", program, *words], cwd=clone, check=True, capture_output=True)
    return clone / "out" / "report.html", (clone / "out" / "report.md").read_text(encoding="utf-8")


def comment_page(comment: str) -> str:
    """The comment as a page that looks like a pull request's."""
    body = markdown.markdown(comment, extensions=["tables", "sane_lists", "md_in_html"])
    head = "<header><b>gpu-tenancy</b> commented on this pull request</header>"
    return f'<!doctype html><meta charset="utf-8"><style>{_STYLE}</style><main>{head}<article>{body}</article></main>'


def forecast_page() -> str:
    """The page of `tenancy whatif` for the scenario of three teams."""
    tree, steps = run_of("example-three-teams")
    return timeline_page(Timeline("example-three-teams", "jobs over time", tree, steps, scenario=True))
