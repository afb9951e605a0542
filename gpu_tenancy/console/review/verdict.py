"""The verdict: rules, guarantees, and what the change means in GPUs, dollars and deletions, in a few sentences."""

from collections.abc import Iterable, Iterator

from gpu_tenancy.console.review.changes import Change
from gpu_tenancy.console.review.review import Comparison, Real, Rules, Tone, Verdict
from gpu_tenancy.model.outlook import StackOutlook
from gpu_tenancy.model.outlook.costs import NOTHING, Cost


def verdict(
    now: StackOutlook,
    comparison: Comparison | None,
    changes: Iterable[Change],
    rules: Rules | None,
    real: Real | None = None,
) -> Verdict:
    """What a reviewer should know first.

    Args:
        now: what the stack comes to.
        comparison: what it came to before.
        changes: since then.
        rules: what the packs said.
        real: what Pulumi's own preview said; its deletions count, where there is one.
    """
    tone, title = _judged(now, rules)
    before = comparison.before if comparison else None
    gone = [each for each in (real.changes if real else changes) if each.action in {"delete", "replace"}]
    sentences = [
        _of_rules(rules),
        _of_guarantees(now),
        *_of_gpus(before, now),
        _of_costs(before, now),
        *_of_deletions(gone),
    ]
    if tone == "good" and gone:
        tone, title = "notice", "Something goes"
    return Verdict(tone, title, tuple(sentence for sentence in sentences if sentence))


def _judged(now: StackOutlook, rules: Rules | None) -> tuple[Tone, str]:
    if rules and rules.mandatory:
        return "bad", "Would be refused"
    if any(each.guaranteed > each.gpus.most for each in now.supply):
        return "bad", "Guarantees exceed the hardware"
    if rules and (rules.advice or rules.exempted):
        return "notice", "Fine, with advice"
    return "good", "Fine"


def _of_rules(rules: Rules | None) -> str:
    if rules is None:
        return "No policy pack was asked."
    broken = len(rules.mandatory)
    if broken:
        return f"{broken} mandatory {'rule breaks' if broken == 1 else 'rules break'}."
    return f"No mandatory rule breaks, {rules.held} hold."


def _of_guarantees(now: StackOutlook) -> str:
    over = [each for each in now.supply if each.guaranteed > each.gpus.most]
    if over:
        listed = ", ".join(f"{each.guaranteed} of {each.gpus.most} {each.flavor}" for each in over)
        return f"Guarantees exceed the hardware: {listed}."
    scarce = [each for each in now.supply if each.guaranteed > each.gpus.least]
    if scarce:
        listed = ", ".join(
            f"{each.flavor} ({each.gpus.least} always there, {each.guaranteed} guaranteed)" for each in scarce
        )
        return f"Guarantees fit the hardware, where nodes come when they are asked for: {listed}."
    return "Guarantees fit the hardware."


def _of_gpus(before: StackOutlook | None, now: StackOutlook) -> Iterator[str]:
    if before is None:
        return
    was, are = _held(before), _held(now)
    for team in sorted(was.keys() | are.keys()):
        if team not in are:
            yield f"{team} goes, which had {_shares(was[team])}."
        elif team not in was:
            yield f"{team} comes, with {_shares(are[team])}."
        else:
            yield from _moves(team, was[team], are[team])


def _moves(team: str, was: "dict[str, tuple[int, int]]", are: "dict[str, tuple[int, int]]") -> Iterator[str]:
    for flavor in sorted(was.keys() | are.keys()):
        old, new = was.get(flavor, (0, 0)), are.get(flavor, (0, 0))
        if old[0] != new[0]:
            yield f"{team} is guaranteed {new[0]} {flavor} (was {old[0]})."
        if old[1] != new[1]:
            yield f"{team} may reach {new[1]} {flavor} (was {old[1]})."


def _shares(held: "dict[str, tuple[int, int]]") -> str:
    listed = [f"{sure} {flavor} guaranteed and {most} at most" for flavor, (sure, most) in sorted(held.items())]
    return ", ".join(listed) or "no GPUs"


def _held(outlook: StackOutlook) -> dict[str, dict[str, tuple[int, int]]]:
    """Each team's guarantee and limit of each flavor."""
    found: dict[str, dict[str, tuple[int, int]]] = {}
    for team in outlook.teams:
        held = found.setdefault(team.name, {})
        for each in team.holdings:
            sure, most = held.get(each.flavor, (0, 0))
            held[each.flavor] = (sure + each.guaranteed, most + each.limit)
    return found


def total(outlook: StackOutlook) -> Cost:
    """A month of all teams' guarantees, and of all their limits."""
    return sum((team.cost for team in outlook.teams), NOTHING)


def _of_costs(before: StackOutlook | None, now: StackOutlook) -> str:
    if before is None:
        return ""
    old, new = total(before), total(now)
    parts = [
        f"cost at {words} {_moved(was, is_)}"
        for words, was, is_ in (("guarantee", old.guaranteed, new.guaranteed), ("the limits", old.limit, new.limit))
    ]
    text = ", ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _moved(was: float | None, is_: float | None) -> str:
    if was is None or is_ is None:
        return "cannot be told (a price is unknown)"
    difference = round(is_ - was)
    if difference == 0:
        return "stays"
    return f"{'rises' if difference > 0 else 'falls'} by ${abs(difference):,} a month"


def _of_deletions(gone: list[Change]) -> Iterator[str]:
    for action, word in (("delete", "deleted"), ("replace", "replaced")):
        found = [each.place for each in gone if each.action == action]
        if found:
            shown = ", ".join(found[:_SHOWN])
            more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
            yield f"{len(found)} {'is' if len(found) == 1 else 'are'} {word}: {shown}{more}."


_SHOWN = 3
