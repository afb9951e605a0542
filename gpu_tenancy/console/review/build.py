"""A review, made of a stack's preview and of what it is compared with."""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from gpu_tenancy.console.errors import ConsoleError
from gpu_tenancy.console.project import Preview, preview, project_name, read_stack
from gpu_tenancy.console.review.base import Base, base
from gpu_tenancy.console.review.changes import Change, changes, resources
from gpu_tenancy.console.review.real import read_real
from gpu_tenancy.console.review.review import Comparison, Review, Rules
from gpu_tenancy.console.review.verdict import verdict
from gpu_tenancy.console.show import price_note
from gpu_tenancy.model.outlook import outlook
from gpu_tenancy.model.problems import StackError


def review(
    found: Preview, project: Path, *, ref: str | None = None, rules: Rules | None = None, real: Path | None = None
) -> Review:
    """Reviews a stack.

    Args:
        found: the stack and what it declares.
        project: its folder.
        ref: a git ref to compare it with.
        rules: what policy packs said of it.
        real: a file that `pulumi preview --json` wrote.

    Raises:
        ConsoleError: the ref or the file is not what it must be.
    """
    now = outlook(found.stack)
    compared = base(ref, found.name, project, project_name(project)) if ref is not None else None
    pools = (*found.stack.pools, *(compared.stack.pools if compared and compared.stack else ()))
    differences = _changes(found, compared, pools)
    comparison = _comparison(compared)
    seen = read_real(real, found.rendered, compared.rendered if compared else None, pools) if real else None
    return Review(
        stack=found.name,
        resources=len(resources(found.rendered)),
        now=now,
        comparison=comparison,
        changes=differences,
        rules=rules,
        real=seen,
        price_note=price_note(found.stack),
        where=_places(found, project),
        verdict=verdict(now, comparison, differences, rules, seen),
    )


def between(stack: str, before: str, after: str | None, project: Path) -> Review:
    """Reviews what changed in a stack from one ref to another, or to the files as they are now.

    Raises:
        ConsoleError: a ref is not there, has no such stack, or its program does not run.
        StackError: the stack as it is now is wrong.
    """
    if after is None:
        return review(preview(stack, project), project, ref=before)
    there = base(after, stack, project, project_name(project))
    if there.rendered is None or there.stack is None:
        raise ConsoleError(f"stack {stack} at {after}: {'; '.join(there.notes)}", "name a ref where it is right")
    found = review(Preview(stack, there.stack, there.rendered, ()), project, ref=before)
    return replace(found, where={})  # The lines are those of the files as they are now.


def _changes(found: Preview, compared: Base | None, pools: tuple[str, ...]) -> tuple[Change, ...]:
    if compared is None or compared.rendered is None:
        return ()
    return changes(compared.rendered, found.rendered, pools)


def _comparison(compared: Base | None) -> Comparison | None:
    if compared is None:
        return None
    before = outlook(compared.stack) if compared.stack else None
    return Comparison(compared.ref, compared.commit, before, compared.notes)


def _places(found: Preview, project: Path) -> dict[str, str]:
    """Where the stack's file says each team and pool."""
    try:
        source = read_stack(found.name, project)
    except (ConsoleError, StackError):  # A stack of another ref may be gone here.
        return {}
    named = {f"team {name}": ("teams", name) for name in found.stack.teams}
    named |= {f"pool {name}": ("pools", name) for name in found.stack.pools}
    return {what: f"{source.file}:{line}" for what, path in named.items() if (line := source.line(path))}


def as_json(done: Review) -> str:
    """A review for machines: the same data, keys as in the classes."""
    data: Mapping[str, Any] = asdict(done) | {"verdict": asdict(done.verdict) | {"line": done.verdict.line}}
    return json.dumps(data, indent=2, ensure_ascii=False, sort_keys=True) + "\n"
