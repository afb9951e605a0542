"""Results of policy packs in a review, and the changes of the policies themselves.

Policies are also evaluated as they are at the base, since a change could disable the rules that it violates. The base's
packs and configuration sets run in a process of their own, from the copy of the base, if their files differ.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.git import git
from gpu_tenancy.base.json import Json
from gpu_tenancy.base.problems import StackError
from gpu_tenancy.engine.project import Preview
from gpu_tenancy.engine.recording import Registration
from gpu_tenancy.engine.render import Rendered
from gpu_tenancy.model.project import read_stack
from gpu_tenancy.model.spec import is_production
from gpu_tenancy.packs.configuration import PackChoice, choose_in_copy
from gpu_tenancy.packs.evaluation import evaluate
from gpu_tenancy.packs.findings import Finding, Outcome, PackResult, by_weight
from gpu_tenancy.review.base import Base, Copy
from gpu_tenancy.review.changes import kind_of, name_of
from gpu_tenancy.review.review import NewExemption, PolicyChanges, RuleLine, Rules, WeakerRule

_RANKS: Final = ("disabled", "advisory", "remediate", "mandatory")
"""Levels; a violation of a later level has more effect."""
_EXEMPTIONS: Final = ("exempt.gpu-rules/", "exempt:", "exempt-")
"""Prefixes of annotations, tags and labels that exempt a resource from a rule: policy/workloads and policy/clouds."""
_BYTECODE: Final = ("*.pyc", "*/__pycache__/*")
_OUTCOMES: Final[dict[str, str]] = {"advice": "broken"}  # of a finding's kind; other kinds are outcomes


def judged(rendered: Rendered, packs: Sequence[PackResult]) -> Rules:
    """The results of policy packs; mandatory violations come first."""
    findings = [finding for pack in packs for finding in pack.findings]
    return Rules(
        lines=rule_lines(rendered, findings),
        held=sum(pack.rules for pack in packs) - len({(finding.pack, finding.rule) for finding in findings}),
        packs=tuple(f"{pack.pack} {pack.version}" for pack in packs),
        levels=dict(Counter(state.level for pack in packs for state in pack.states.values())),
    )


def rule_lines(rendered: Rendered, findings: Iterable[Finding]) -> tuple[RuleLine, ...]:
    """Findings with the names of their resources; mandatory violations come first."""
    places = {
        registration.urn: f"{kind_of(registration)} {name_of(registration)}" for registration in rendered.registrations
    }
    return tuple(
        RuleLine(
            pack=finding.pack,
            rule=finding.rule,
            severity=finding.severity,
            level="mandatory" if finding.kind == "broken" else "advisory",
            outcome="unknown" if finding.outcome is Outcome.UNKNOWN else _OUTCOMES.get(finding.kind, finding.kind),
            place=places.get(finding.urn, "the stack"),
            says=finding.message,
        )
        for finding in by_weight(list(findings))
    )


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A pack of the change as in `--policy`, its folder and configuration, and its findings."""

    text: str
    chosen: PackChoice
    result: PackResult


def policy_changes(
    current: Preview, packs: Sequence[Evaluated], base: Base, copy: Copy, project: Path
) -> PolicyChanges:
    """Compares the policies of a change with those of its base; `copy` has the base's project."""
    rendered = current.rendered
    before = _was_production(current, copy.folder)

    def in_copy(path: Path) -> Path:
        whole, inside = path.absolute(), project.absolute()
        tracked = whole.is_relative_to(inside) and git(
            project, base.ref, "ls-files", "--", str(whole.relative_to(inside))
        )
        return copy.folder / whole.relative_to(inside) if tracked else path

    differing: list[tuple[Evaluated, PackChoice]] = []
    not_compared: list[str] = []
    for pack in packs:
        chosen = choose_in_copy(pack.text, copy.folder, in_copy, production=before)
        if chosen is None:
            not_compared.append(f"Policy pack {pack.text} does not exist at {base.ref}")
        elif chosen == pack.chosen and _changed_outside(pack.chosen, project, base.ref):
            not_compared.append(f"Policy pack {pack.text} changed since {base.ref}, outside the project")
        elif not _same(pack.chosen, chosen, project, base.ref):
            differing.append((pack, replace(chosen, stack=current.stack)))
    with ThreadPoolExecutor(max(1, len(differing))) as threads:
        results = list(threads.map(partial(_evaluated, rendered), (chosen for _, chosen in differing)))
    weaker: list[WeakerRule] = []
    unreported: list[Finding] = []
    for (pack, _), result in zip(differing, results, strict=True):
        if isinstance(result, PackResult):
            weaker += weaker_rules(result, pack.result)
            reported = {(finding.rule, finding.urn) for finding in pack.result.findings if finding.kind == "broken"}
            broken = (finding for finding in result.findings if finding.kind == "broken")
            unreported += (finding for finding in broken if (finding.rule, finding.urn) not in reported)
        else:
            not_compared.append(f"Policy pack {pack.text} cannot be evaluated as at {base.ref}: {result}")
    old = {registration.urn: registration for registration in base.rendered.registrations}
    standing = {new.urn for new in rendered.registrations if old.get(new.urn) == new}
    return PolicyChanges(
        base.ref,
        weaker=tuple(weaker),
        unreported=rule_lines(rendered, (finding for finding in unreported if finding.urn not in standing)),
        standing=rule_lines(rendered, (finding for finding in unreported if finding.urn in standing)),
        exemptions=tuple(new_exemptions(base.rendered, rendered)),
        not_compared=tuple(not_compared),
    )


def _changed_outside(chosen: PackChoice, project: Path, ref: str) -> bool:
    paths = [str(path.absolute()) for path in (chosen.folder, chosen.config) if path]
    try:
        return bool(git(project, ref, "diff", "--name-only", ref, "--", *paths))
    except ConsoleError:  # Outside the repository.
        return False


def _was_production(current: Preview, folder: Path) -> bool:
    """The stack's production flag at the base selects the configuration set; as now if it is not there."""
    try:
        sections = read_stack(current.name, folder).sections
    except (ConsoleError, StackError):
        return current.stack.is_production
    declared = sections.get("production")
    environment = str(sections.get("environment", "dev"))
    return is_production(environment, declared=declared if isinstance(declared, bool) else None)


def _evaluated(rendered: Rendered, chosen: PackChoice) -> PackResult | str:
    try:
        return evaluate(rendered, [chosen])[0]
    except ConsoleError as error:
        return error.what


def _same(one: PackChoice, other: PackChoice, project: Path, ref: str) -> bool:
    if one == other:
        return True
    # Python may read committed bytecode in place of the source beside it.
    return not git(project, ref, "ls-files", "--", *_BYTECODE) and _files(one) == _files(other)


def _files(pack: PackChoice) -> dict[str, bytes]:
    """Contents by path in the folder, and of the configuration; packs share files by links."""
    return {
        os.path.relpath(Path(place, name), pack.folder): Path(place, name).read_bytes()
        for place, _, names in os.walk(pack.folder, followlinks=True)
        for name in names
        if Path(place).name != "__pycache__" and Path(place, name).is_file()
    } | ({"": pack.config.read_bytes()} if pack.config else {})


def weaker_rules(before: PackResult, now: PackResult) -> Iterator[WeakerRule]:
    """The rules of a pack that the change lowers, removes or configures differently."""
    for rule, was in sorted(before.states.items()):
        state = now.states.get(rule)
        if was.level == "disabled":
            continue
        if state is None or _RANKS.index(state.level) < _RANKS.index(was.level):
            yield WeakerRule(before.pack, rule, f"{was.level} → {state.level if state else 'removed'}", lowered=True)
            continue
        # Which settings are stricter is not known here.
        keys = sorted(was.settings.keys() | state.settings.keys())
        changed = [key for key in keys if was.settings.get(key) != state.settings.get(key)]
        if changed:
            yield WeakerRule(before.pack, rule, f"settings changed: {', '.join(changed)}", lowered=False)


def new_exemptions(before: Rendered, now: Rendered) -> Iterator[NewExemption]:
    """The exemptions of resources that the base does not have."""
    known = {entry for registration in before.registrations for entry in _exemptions(registration)}
    for registration in now.registrations:
        place = f"{kind_of(registration)} {name_of(registration)}"
        for urn, rule, text in sorted(_exemptions(registration)):
            if (urn, rule, text) not in known:
                yield NewExemption(rule, place, text)


def _exemptions(registration: Registration) -> set[tuple[str, str, str]]:
    """URN, rule and text of each exemption in the annotations, tags and labels of a resource."""
    return {
        (registration.urn, key.removeprefix(prefix), str(value))
        for key, value in _pairs(dict(registration.shown))
        for prefix in _EXEMPTIONS
        if key.startswith(prefix)
    }


def _pairs(value: Json) -> Iterator[tuple[str, Json]]:
    """All keys in the inputs of a resource with their values; tags can also be a list of `{key, value}`."""
    if isinstance(value, dict):
        yield from value.items()
        if isinstance(key := value.get("key"), str):
            yield key, value.get("value")
        for inner in value.values():
            yield from _pairs(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _pairs(inner)
