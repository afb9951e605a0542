"""The verdict of a review: policies, guarantees, and the change in GPUs, dollars and deleted resources."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from gpu_tenancy.base.guarantee import Guarantee
from gpu_tenancy.base.quantity import amount_text, is_extended
from gpu_tenancy.base.texts import counted, first_names, plural
from gpu_tenancy.base.usd import Usd
from gpu_tenancy.explain.proposal import Effect
from gpu_tenancy.model.outlook import StackOutlook, Supply
from gpu_tenancy.model.outlook.shares import NOTHING, Cost
from gpu_tenancy.review import reasons
from gpu_tenancy.review.changes import Change
from gpu_tenancy.review.review import UNCOMPARED, Comparison, PolicyChanges, Real, Rules, Verdict

OK: Final = "OK"
OK_WITH_FINDINGS: Final = "OK, with findings"
REVIEW: Final = "Review needed"
BLOCKED: Final = "Blocked"

_Shares: TypeAlias = Mapping[str, tuple[int, int]]  # guarantee and limit by flavor
_UNCHANGED: Final = "unchanged"
NOT_EVALUATED: Final = "Policies not evaluated (use --policy)"


def verdict(  # noqa: PLR0913 - what a review is made of
    now: StackOutlook,
    comparison: Comparison | None,
    changes: Iterable[Change],
    rules: Rules | None,
    *,
    real: Real | None = None,
    effect: Effect | None = None,
    runs: str = "",
    support: str = "",
) -> Verdict:
    """Decides between OK, Review needed and Blocked; what blocks comes first, then access to data and secrets.

    Deletions of `real`, the result of `pulumi preview`, replace those of `changes`, which are from the files. `runs` is
    the version of Kubernetes of the running cluster, `support` a note about the support of the stack's.
    """
    seen = real.changes if real else tuple(changes)
    lost = [change for change in seen if change.action in {"delete", "replace"}]
    before = comparison.before if comparison else None
    policies: tuple[str, ...] = (NOT_EVALUATED,)
    if rules:  # The results, and what the change does to the policies themselves; what decides comes first.
        results, weaker = f"Policies: {policy_counts(rules)}", policy_reasons(rules.changes) if rules.changes else ()
        violations = (f"{line.says} ({line.rule})" for line in rules.mandatory)
        policies = (results, *violations, *weaker) if rules.mandatory else (*weaker, results)
    guarantees = _guarantees(now)
    base = before or now  # Without a base nothing changes.
    refused = [*reasons.claims_lost(base, now, effect), *reasons.version_refused(base, now, runs)]
    refused += reasons.blocking(seen, base)
    unprotected = [f"No longer production: {now.standing}"] if base.production and not now.production else []
    ended = reasons.work_lost(effect) if effect else ()
    covered = (*no_longer_covered(base, now), *new_warnings(base, now))
    risks = [*covered, *unprotected, *ended, *reasons.reorganised(base, now), *reasons.data_moved(base, now)]
    risks += [*reasons.losses(lost, base), *reasons.restarts(seen, base)]
    adopted = [name for name in now.adopts if before is None or name not in before.adopts]
    risks += reasons.unsure(seen)
    risks += [note for note in (comparison.notes if comparison else ()) if note.startswith(UNCOMPARED)]
    if adopted:
        names = first_names(adopted, reasons.LISTED)
        risks.append(f"{plural(len(adopted), 'object')} will be adopted if existing: {names}")
    gained = [*reasons.access(base, now, "gain"), *reasons.data_rights(base, now, "gain")]
    gained += reasons.secret_reasons(base, now)
    lost_rights = (*reasons.access(now, base, "lose"), *reasons.data_rights(now, base, "lose"))
    people = (*([support] if support else ()), *gained, *lost_rights, *reasons.data_removed(base, now))
    rest = [*(reasons.work_changed(effect) if effect else ()), *_gpus(base, now)]
    rest += [_costs(before, now)] if before else []
    first = len(refused) + (len(policies) if rules and rules.violated else 0)
    if rules and rules.violated:
        return Verdict("bad", BLOCKED, (*refused, *policies, *people, guarantees, *risks, *rest), first)
    if refused:
        return Verdict("bad", BLOCKED, (*refused, *people, *risks, *policies, guarantees, *rest), first)
    if gained or risks or len(policies) > 1 or (rules and _without_effect(rules)):
        return Verdict("notice", REVIEW, (*people, *risks, *policies, guarantees, *rest))
    if support or (rules and (rules.advice or rules.exempted)):
        return Verdict("notice", OK_WITH_FINDINGS, (*people, *policies, guarantees, *rest))
    return Verdict("good", OK, (*people, *policies, guarantees, *rest))


def _without_effect(rules: Rules) -> str:
    """Why rules cannot block a change; empty if they can."""
    levels = {level for level, count in rules.levels.items() if count}
    if not levels - {"disabled"}:
        return "no rule is enabled"
    return "" if levels & {"mandatory", "remediate"} else "no rule is mandatory"


def policy_reasons(policy: PolicyChanges) -> Iterator[str]:
    """Changes of the policies as reasons, the most important first."""
    for findings, of in ((policy.unreported, "new or updated"), (policy.standing, "unchanged")):
        if findings:
            places = first_names([f"{finding.rule} ({finding.place})" for finding in findings], reasons.LISTED)
            violations = f"{plural(len(findings), 'mandatory violation')} of {of} resources"
            yield f"Policies at {policy.ref}: {violations} that the changed policies do not report: {places}"
    for what, lowered in (("Policies weaker", True), ("Policies have other settings", False)):
        if rules := [f"{rule.rule}: {rule.change}" for rule in policy.weaker if rule.lowered is lowered]:
            yield f"{what}: {plural(len(rules), 'rule')} ({first_names(rules, reasons.LISTED)})"
    if policy.exemptions:
        exemptions = [f"{exemption.rule} ({exemption.place})" for exemption in policy.exemptions]
        yield f"{plural(len(exemptions), 'new exemption')}: {first_names(exemptions, reasons.LISTED)}"
    yield from policy.not_compared


def policy_counts(rules: Rules) -> str:
    """`61 passed, 1 mandatory violation, 2 advisory, 1 exempted`; `no rule is enabled`."""
    if without_effect := _without_effect(rules):
        return ", ".join((without_effect, *([f"{rules.held} passed"] if rules.held else ()), *finding_counts(rules)))
    mandatory = len(rules.mandatory)
    violations = f"{mandatory or 'no'} mandatory {'violation' if mandatory == 1 else 'violations'}"
    return ", ".join((f"{rules.held} passed", violations, *finding_counts(rules)))


def finding_counts(rules: Rules) -> Iterator[str]:
    """Counts of the findings that do not block a deployment."""
    fixed = sum(1 for line in rules.advice if line.outcome == "mended")
    counts = {"advisory": len(rules.advice) - fixed, "exempted": len(rules.exempted), "fixed by remediation": fixed}
    yield from (f"{count} {label}" for label, count in counts.items() if count)


def _guarantees(now: StackOutlook) -> str:
    autoscaled = [supply for supply in now.supply if supply.guaranteed > supply.capacity.minimum]
    if autoscaled:
        return f"Guarantees fit, but depend on autoscaling: {', '.join(map(_depending, autoscaled))}"
    if now.workers:
        clusters = f"{plural(len(now.workers), 'worker cluster')} ({first_names(now.workers, reasons.LISTED)})"
        return f"Guarantees fit the sum of {clusters}; a workload must also fit one of them, which is not checked"
    if now.guarantee_warnings:
        return f"Guarantees fit, with {plural(len(now.guarantee_warnings), 'warning')} about CPU or memory"
    return "Guarantees fit"


def no_longer_covered(before: StackOutlook, now: StackOutlook) -> Iterator[str]:
    """The largest jobs that guarantees covered before, and do not now for lack of CPU or memory."""
    old, new = _guaranteed(before), _guaranteed(now)
    for (team, flavor), guarantee in new.items():
        if (was := old.get((team, flavor))) and (units := min(was.units, guarantee.units)):
            job = {name: amount * units // was.units for name, amount in was.beside.items()}
            if missing := guarantee.missing(job):
                gpus = counted(units, was.resource, flavor if is_extended(was.resource) else "")
                *first, last = gpus, *(counted(job[name], name) for name in missing)
                bound = " and ".join(counted(guarantee.amounts[name], name) for name in missing)
                yield f"A job of {', '.join(first)} and {last} of {team} is no longer covered: {bound} guaranteed"


def _guaranteed(outlook: StackOutlook) -> dict[tuple[str, str], Guarantee]:
    """Guarantees of queues by team and flavor."""
    return {
        (team.name, holding.flavor): holding.guarantee
        for team in outlook.teams
        for holding in team.holdings
        if holding.guarantee and holding.scheduler == "Kueue"
    }


def new_warnings(before: StackOutlook, now: StackOutlook) -> Iterator[str]:
    """Warnings about guarantees and priorities, at places of the stack at which the base has none."""
    old = {warning.partition(": ")[0] for warning in (*before.guarantee_warnings, *before.other_warnings)}
    new = (*now.guarantee_warnings, *now.other_warnings)
    yield from (warning for warning in new if warning.partition(": ")[0] not in old)


def _depending(supply: Supply) -> str:
    """`h100 (24 GPUs guaranteed, 16 always available)`."""
    guaranteed = _amount(supply.guaranteed, supply.resource)
    always = amount_text(supply.resource, supply.capacity.minimum)
    return f"{supply.flavor} ({guaranteed} guaranteed, {always} always available)"


def _gpus(before: StackOutlook, now: StackOutlook) -> Iterator[str]:
    old, new, resources = _shares(before), _shares(now), {**before.resources, **now.resources}
    was, shared = ({team.name: team.shares for team in outlook.teams} for outlook in (before, now))
    for team in sorted(old.keys() | new.keys()):
        if team not in new:
            yield f"Team {team} is removed (had {was[team] or _listed(old[team], resources)})"
        elif team not in old:
            yield f"Team {team} is added ({shared[team] or _listed(new[team], resources)})"
        else:
            if was[team] != shared[team]:
                yield f"Team {team}: {was[team] or 'its own queue'} before, {shared[team] or 'its own queue'} now"
            yield from _moved(team, old[team], new[team], resources)


def _moved(team: str, old: _Shares, new: _Shares, resources: Mapping[str, str]) -> Iterator[str]:
    for flavor in sorted(old.keys() | new.keys()):
        were, are = old.get(flavor, (0, 0)), new.get(flavor, (0, 0))
        for what, was, now in zip(("guarantee", "limit"), were, are, strict=True):
            if was != now:
                resource, direction = resources[flavor], "raised" if now > was else "lowered"
                change = f"from {amount_text(resource, was)} to {_amount(now, resource)}"
                yield f"Team {team}: {flavor} {what} {direction} {change}"


def _listed(shares: _Shares, resources: Mapping[str, str]) -> str:
    flavors = [
        f"{counted(guaranteed, resources[flavor], flavor)} guaranteed, limit {amount_text(resources[flavor], limit)}"
        for flavor, (guaranteed, limit) in sorted(shares.items())
    ]
    return "; ".join(flavors) or "no GPUs"


def _amount(amount: int, resource: str) -> str:
    """`8 GPUs`, `40`: the flavor of CPUs and memory names them already."""
    return counted(amount, resource) if is_extended(resource) else amount_text(resource, amount)


def _shares(outlook: StackOutlook) -> dict[str, dict[str, tuple[int, int]]]:
    shares: dict[str, dict[str, tuple[int, int]]] = {}
    for team in outlook.teams:
        flavors = shares.setdefault(team.name, {})
        for holding in team.holdings:
            guaranteed, limit = flavors.get(holding.flavor, (0, 0))
            flavors[holding.flavor] = (guaranteed + holding.guaranteed, limit + holding.limit)
    return shares


def total(outlook: StackOutlook) -> Cost:
    """Monthly cost of all teams' guarantees and limits."""
    return sum((team.cost for team in outlook.teams), NOTHING)


def _costs(before: StackOutlook, now: StackOutlook) -> str:
    pairs = zip(before.bill.figures, now.bill.figures, strict=True)
    changes = {new.label.rpartition(", ")[2]: _difference(old.usd, new.usd) for old, new in pairs}
    same = set(changes.values()) == {_UNCHANGED}
    return f"Monthly cost: {_UNCHANGED if same else ', '.join(f'{label} {usd}' for label, usd in changes.items())}"


def _difference(before: Usd, now: Usd) -> str:
    """`+$20,036`, `unchanged`, or both sums if they lack different prices."""
    if before.unpriced != now.unpriced:
        return f"{now} (was {before})"
    difference = round(now.known - before.known)
    return f"{'+' if difference > 0 else '-'}${abs(difference):,}" if difference else _UNCHANGED
