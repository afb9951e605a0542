"""Builds the review of a stack from its preview and an optional base."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from gpu_tenancy.base.bounds import read_json
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.problems import StackError
from gpu_tenancy.base.usd import NONE, Usd
from gpu_tenancy.cluster.reading import State
from gpu_tenancy.engine.project import Preview
from gpu_tenancy.engine.recording import SIGNATURE, STACK_TYPE, UNKNOWN, Registration
from gpu_tenancy.engine.render import Rendered
from gpu_tenancy.explain.proposal import Effect, Proposal, effect
from gpu_tenancy.model.catalogue.releases import running_version, support_note
from gpu_tenancy.model.outlook import outlook
from gpu_tenancy.model.plan.queues import tenancy
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.project import project_name, read_stack
from gpu_tenancy.model.spec.cluster import service_of
from gpu_tenancy.packs.configuration import choose
from gpu_tenancy.packs.evaluation import evaluate
from gpu_tenancy.review.base import base_in, checkout
from gpu_tenancy.review.changes import Action, Change, FieldChange, Groups, changed, changes, in_order, resources, short
from gpu_tenancy.review.policies import Evaluated, judged, policy_changes
from gpu_tenancy.review.reasons import restarted_pools
from gpu_tenancy.review.review import Comparison, Real, Review, Used
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
    """Reviews a stack; its base is the git ref `ref`, `live` a running cluster for the effect on its workloads.

    `policies` are packs as in `--policy`, `real` is a file written by `pulumi preview --json`.

    Raises:
        ConsoleError: the ref, a policy pack or the file is invalid.
    """
    now = outlook(current.stack)
    chosen = [replace(choose(text, project, production=now.production), stack=current.stack) for text in policies]
    results = evaluate(current.rendered, chosen) if chosen else []
    rules = judged(current.rendered, results) if results else None
    compared = None
    if ref is not None:
        with checkout(project, ref) as copy:
            compared = base_in(copy, ref, current.name, project_name(project))
            if rules:
                packs = [Evaluated(*parts) for parts in zip(policies, chosen, results, strict=True)]
                rules = replace(rules, changes=policy_changes(current, packs, compared, copy, project))
    stack, rendered = (compared.stack, compared.rendered) if compared else (None, None)
    pools = (*current.stack.pools, *(stack.pools if stack else ()))
    differences = changes(rendered, current.rendered, pools) if rendered else ()
    before = outlook(stack) if stack else None
    comparison = Comparison(compared.ref, compared.commit, before, compared.notes) if compared else None
    seen = read_real(real, current.rendered, rendered, pools) if real else None
    pools_of = restarted_pools(seen.changes if seen else differences, before or now)
    found = _effect(current, live, {pool for names in pools_of.values() for pool in names}) if live else None
    cluster = current.stack.cluster
    extended = getattr(cluster.creation, "support", "") == "extended"
    support = support_note(service_of(cluster), cluster.kubernetes, datetime.now(UTC).date(), extended=extended)
    runs = running_version(service_of(cluster), cluster.kubernetes, live.kubernetes if live else "")
    return Review(
        stack=current.name,
        resources=len(resources(current.rendered)),
        now=now,
        comparison=comparison,
        changes=differences,
        rules=rules,
        real=seen,
        where=_places(current, project),
        verdict=verdict(now, comparison, differences, rules, real=seen, effect=found, runs=runs, support=support),
        effect=found,
        used=used,
    )


def _effect(current: Preview, live: State, restarted: Collection[str]) -> Effect:
    strategies = tenancy(Tree(current.stack)).fair_sharing or ()
    stack = current.stack
    nodes = {name: pool.nodes.max for name, pool in stack.pools.items()}
    grace = stack.guards.periods if stack.guards_action == "deny" else None
    objects = [one.manifest for one in current.objects]
    return effect(live, Proposal(objects, current.name, strategies, grace, nodes, restarted, stack.idle_teams))


def _places(current: Preview, project: Path) -> dict[str, str]:
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
    """The review as JSON."""
    return json.dumps(as_data(done), indent=2, ensure_ascii=False, sort_keys=True) + "\n"


class _UsedLine(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)

    team: str
    used: float
    usd_per_gpu_hour: float | None


class _UsedMonth(BaseModel):
    stack: str
    month: str
    teams: list[_UsedLine]


_FIX_USED: Final = "write it by `tenancy cost STACK --month YYYY-MM -o json`"


def read_used(file: Path, stack: str) -> Used:
    """The teams' use in a month, from `tenancy cost -o json`. Raises ConsoleError: invalid, or of another stack."""
    try:
        month = _UsedMonth.model_validate_json(file.read_bytes())
    except OSError as error:
        raise ConsoleError(f"{file}: cannot read the file: {error.strerror}", _FIX_USED) from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        what = f"{place}: {first['msg']}" if place else first["msg"]
        raise ConsoleError(f"{file}: not a month's GPU-hours: {what}", _FIX_USED) from error
    if month.stack != stack:
        raise ConsoleError(f"{file}: of stack '{month.stack}', not of '{stack}'", _FIX_USED)
    teams: dict[str, Usd] = {}
    for line in month.teams:
        teams[line.team] = teams.get(line.team, NONE) + Usd.of(line.used, line.usd_per_gpu_hour, line.team)
    return Used(month.month, teams)


# The operations of a step: https://github.com/pulumi/pulumi/blob/master/pkg/display/json.go and sdk/go/common/display.
_ACTIONS: Final[Mapping[str, Action]] = {
    "create": "create", "import": "create", "update": "update", "delete": "delete", "replace": "replace",
    "create-replacement": "replace", "delete-replaced": "replace", "import-replacement": "replace",
}  # fmt: skip
_SAME: Final = frozenset({"same", "refresh", "read", "read-replacement", "read-discard"})


def read_real(file: Path, after: Rendered, before: Rendered | None, pools: tuple[str, ...]) -> Real:
    """Reads the output of `pulumi preview --json`. Raises ConsoleError if it is unreadable or no preview.

    The offline rendering `after` assigns resources to teams and pools (named `pools`), `before` deleted ones.
    """
    try:
        preview = read_json(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConsoleError(f"{file}: cannot read the file: {error.strerror}", _FIX) from error
    except ValueError as error:
        raise ConsoleError(f"{file}: not valid JSON", _FIX) from error
    steps = _map(preview).get("steps")
    if not isinstance(steps, list):
        raise ConsoleError(f"{file}: missing key 'steps'", _FIX)
    known = _Known(after, before, pools)
    changes: dict[str, Change] = {}
    same = 0
    for step in cast("list[Mapping[str, Any]]", steps):
        urn, operation = str(step.get("urn", "")), str(step.get("op", ""))
        state = _map(step.get("newState") or step.get("oldState"))
        if not state.get("custom") or urn.split("::")[-2:-1] == [STACK_TYPE] or ":providers:" in urn:
            continue
        if operation in _SAME:
            same += 1
        elif operation in _ACTIONS and not (urn in changes and changes[urn].fields):
            changes[urn] = known.change(_ACTIONS[operation], urn, step, state)
    return Real(in_order(changes.values()), same)


def _map(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


_FIX: Final = "specify a file written by `pulumi preview --json`"


class _Known:
    """Resources by the URN part after the stack, since a preview may use the fully qualified stack name."""

    def __init__(self, after: Rendered, before: Rendered | None, pools: tuple[str, ...]) -> None:
        self._by_urn: dict[str, tuple[Registration, Groups]] = {}
        for rendered in (before, after):
            if rendered is not None:
                groups = Groups(rendered, pools)
                self._by_urn |= {
                    _after_stack(registration.urn): (registration, groups) for registration in rendered.registrations
                }

    def change(self, action: Action, urn: str, step: Mapping[str, Any], state: Mapping[str, Any]) -> Change:
        old, new = _map(_map(step.get("oldState")).get("inputs")), _map(_map(step.get("newState")).get("inputs"))
        forcing = {str(reason) for reason in step.get("replaceReasons") or ()}
        keys = {
            path: ["".join(match) for match in _KEY.findall(path)] for path in sorted(_map(step.get("detailedDiff")))
        }
        fields = tuple(
            FieldChange(".".join(at), _at(old, at), _at(new, at), replaces=not forcing.isdisjoint((path, *at[:1])))
            for path, at in keys.items()
        )
        if known := self._by_urn.get(_after_stack(urn)):
            registration, groups = known
            protected = bool(_map(step.get("oldState")).get("protect"))
            return replace(changed(registration, action, fields, groups, protected=protected), urn=urn)
        kind = str(state.get("type", "")).rpartition(":")[2]
        return Change(action, "not in the stack file", kind, urn.rpartition("::")[2], urn, fields)


def _after_stack(urn: str) -> str:
    return urn.partition("::")[2]


# A key of a property path such as `spec.containers[0].resources["nvidia.com/gpu"]`.
_KEY: Final = re.compile(r'\["(.+?)"\]|\[(.+?)\]|([^.[]+)')


def _at(value: Any, keys: list[str]) -> str:
    for key in keys:
        if isinstance(value, list):
            items = cast("list[Any]", value)
            value = items[int(key)] if key.isdigit() and int(key) < len(items) else None
        elif isinstance(value, dict):
            value = cast("dict[str, Any]", value).get(key)
        else:
            value = None
        if value is None:
            return ""
    return short(_shown(value), ".".join(keys))


def _shown(value: Any) -> Any:
    if value == UNKNOWN:
        return "[unknown]"
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value)
        return "[secret]" if SIGNATURE in items else {key: _shown(item) for key, item in items.items()}
    if isinstance(value, list):
        return [_shown(item) for item in cast("list[Any]", value)]
    return value
