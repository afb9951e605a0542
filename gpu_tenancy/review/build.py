"""Builds the review of a stack from its preview and an optional base."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.problems import StackError
from gpu_tenancy.engine.project import Preview, preview
from gpu_tenancy.inspect.proposal import Effect, Proposal, effect
from gpu_tenancy.inspect.reading import State
from gpu_tenancy.model.outlook import outlook
from gpu_tenancy.model.plan.costs import price_note
from gpu_tenancy.model.plan.queues import tenancy
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.project import project_name, read_stack
from gpu_tenancy.packs.choosing import choose
from gpu_tenancy.packs.evaluation import evaluate
from gpu_tenancy.review.base import base, base_in, checkout
from gpu_tenancy.review.changes import changes, resources
from gpu_tenancy.review.policies import Evaluated, judged, policy_changes
from gpu_tenancy.review.real import read_real
from gpu_tenancy.review.review import Comparison, Review
from gpu_tenancy.review.used import Used
from gpu_tenancy.review.verdict import verdict


def review(  # noqa: PLR0913 - what a review is made of
    current: Preview,
    project: Path,
    *,
    ref: str | None = None,
    policies: Sequence[str] = (),
    real: Path | None = None,
    live: State | None = None,
    used: Used | None = None,
) -> Review:
    """Reviews a stack.

    Args:
        current: the stack and its rendered resources.
        project: folder of `Pulumi.yaml`.
        ref: git ref of the base.
        policies: policy packs to evaluate, as the option `--policy` has them.
        real: file written by `pulumi preview --json`.
        live: of a running cluster with the stack, for the effect on its workloads.
        used: what teams used in a month.

    Raises:
        ConsoleError: the ref, a policy pack or the file is invalid.
    """
    now = outlook(current.stack)
    packs = _evaluated(current, project, policies)
    rules = judged(current.rendered, [pack.result for pack in packs]) if packs else None
    compared = None
    if ref is not None:
        with checkout(project, ref) as copy:
            compared = base_in(copy, ref, current.name, project_name(project))
            if rules:
                rules = replace(rules, changes=policy_changes(current, packs, compared, copy, project))
    stack, rendered = (compared.stack, compared.rendered) if compared else (None, None)
    pools = (*current.stack.pools, *(stack.pools if stack else ()))
    differences = changes(rendered, current.rendered, pools) if rendered else ()
    before = outlook(stack) if stack else None
    comparison = Comparison(compared.ref, compared.commit, before, compared.notes) if compared else None
    seen = read_real(real, current.rendered, rendered, pools) if real else None
    found = _effect(current, live) if live else None
    return Review(
        stack=current.name,
        resources=len(resources(current.rendered)),
        now=now,
        comparison=comparison,
        changes=differences,
        rules=rules,
        real=seen,
        price_note=price_note(current.stack),
        where=_places(current, project),
        verdict=verdict(now, comparison, differences, rules, real=seen, effect=found),
        effect=found,
        used=used,
    )


def _effect(current: Preview, live: State) -> Effect:
    strategies = tenancy(Tree(current.stack)).fair_sharing or ()
    stack = current.stack
    nodes = {name: pool.nodes.max for name, pool in stack.pools.items()}
    grace = stack.guards.periods if stack.guards_action == "deny" else None
    objects = [one.manifest for one in current.objects]
    return effect(live, Proposal(objects, current.name, strategies, grace, nodes))


def _evaluated(current: Preview, project: Path, policies: Sequence[str]) -> list[Evaluated]:
    chosen = [choose(text, project, production=current.stack.is_production) for text in policies]
    results = evaluate(current.rendered, chosen) if chosen else []
    return [Evaluated(*parts) for parts in zip(policies, chosen, results, strict=True)]


def between(stack: str, before: str, after: str | None, project: Path) -> Review:
    """Reviews the change of a stack between two refs, or between a ref and the working tree.

    Raises:
        ConsoleError: a ref does not exist, does not have the stack, or its program fails.
        StackError: the stack in the working tree is invalid.
    """
    if after is None:
        return review(preview(stack, project), project, ref=before)
    later = base(after, stack, project, project_name(project))
    if later.rendered is None or later.stack is None:
        notes = "; ".join(later.notes)
        raise ConsoleError(f"stack {stack} at {after}: {notes}", "specify a ref where the stack is valid")
    done = review(Preview(stack, later.stack, later.rendered, (), later.stack), project, ref=before)
    return replace(done, where={})  # Line numbers of the working tree do not apply to a ref.


def _places(current: Preview, project: Path) -> dict[str, str]:
    """File and line of each team and pool."""
    try:
        source = read_stack(current.name, project)
    except (ConsoleError, StackError):  # The working tree may not have a stack of another ref.
        return {}
    named = {f"team {name}": ("teams", name) for name in current.stack.teams}
    named |= {f"pool {name}": ("pools", name) for name in current.stack.pools}
    return {what: f"{source.file}:{line}" for what, path in named.items() if (line := source.line(path))}


def as_data(done: Review) -> Mapping[str, Any]:
    """The review for programs; keys are the attributes of the classes."""
    return asdict(done) | {"verdict": asdict(done.verdict) | {"line": done.verdict.line}}


def as_json(done: Review) -> str:
    """The same as JSON."""
    return json.dumps(as_data(done), indent=2, ensure_ascii=False, sort_keys=True) + "\n"
