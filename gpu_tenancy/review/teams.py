"""What a change does to teams as a whole: removed, renamed, split, merged, moved; and what is lost with a namespace.

The namespace, ClusterQueue and LocalQueue of a team have its name, which cannot be changed in Kubernetes: a renamed
team is a removed and an added one.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from gpu_tenancy.base.quantity import format_bytes
from gpu_tenancy.base.texts import first_names, plural
from gpu_tenancy.inspect.proposal import Effect
from gpu_tenancy.model.outlook import StackOutlook, TeamOutlook
from gpu_tenancy.review.reasons import LISTED

_INSTEAD: Final = (
    "to keep what runs, first deploy a change that only adds the new, let people move, then remove the old"
)
_FEATURES: Final = 2
"""Of owner, cost center, members and GPUs: how many must be equal for a likely successor."""


def claims_lost(before: StackOutlook, now: StackOutlook, effect: Effect | None) -> Iterator[str]:
    """Why removing a team is refused: its namespace has PersistentVolumeClaims, which are deleted with it.

    Args:
        before: summary of the base, for the claims that the stack declares.
        now: the stack's summary.
        effect: on a running cluster, for the claims that people have made.
    """
    names = {team.name for team in now.teams}
    lost: dict[str, dict[str, int]] = {name: dict(claims) for name, claims in effect.claims.items()} if effect else {}
    for access in before.data:
        if access.kind == "storage" and access.team not in names:
            lost.setdefault(access.team, {}).setdefault(access.name, access.size)
    for team, claims in sorted(lost.items()):
        size = format_bytes(sum(claims.values()))
        yield (
            f"Removing team {team} deletes its namespace with {plural(len(claims), 'claim')} ({size}:"
            f" {first_names(sorted(claims), LISTED)}); copy the data, delete the claims (`storage` of the team in a"
            " change of its own), then remove the team"
        )


def reorganised(before: StackOutlook, now: StackOutlook) -> Iterator[str]:
    """Teams that are removed, with their likely successors, and teams that move to another cohort.

    `Team a is removed, likely renamed to b (same owner, members): …`.
    """
    old, new = ({team.name: team for team in outlook.teams} for outlook in (before, now))
    added = {name: team for name, team in new.items() if name not in old}
    removed = {name: team for name, team in old.items() if name not in new}
    people = {**_people(before), **{name: who for name, who in _people(now).items() if name in new}}
    likely = {name: _successors(team, added, people) for name, team in removed.items()}
    taken = Counter(name for successors in likely.values() for name in successors)
    for name, successors in sorted(likely.items()):
        if len(successors) > 1:
            what = f", likely split into {first_names(list(successors), LISTED)}"
        elif merged := [one for one in successors if taken[one] > 1]:
            what = f", likely merged into {merged[0]}"
        else:
            what = "".join(f", likely renamed to {one}" for one in successors)
        same = f" (same {', '.join(next(iter(successors.values())))})" if successors else ""
        instead = f"; {_INSTEAD}" if successors else ""
        yield (
            f"Team {name} is removed{what}{same}: its namespace is deleted with its workloads, and its metrics end"
            f" under this name{instead}"
        )
    for name in sorted(old.keys() & new.keys()):
        was, team = old[name], new[name]
        if was.queue == team.queue and was.cohort != team.cohort:
            yield (
                f"Team {name} moves from cohort {was.cohort} to {team.cohort}: namespace, claims and metrics stay; what"
                " its workloads hold counts in the new cohort at once, and what they borrowed can be reclaimed there"
            )


def _people(outlook: StackOutlook) -> Mapping[str, Collection[tuple[str, str]]]:
    members: dict[str, set[tuple[str, str]]] = {}
    for membership in outlook.people:
        members.setdefault(membership.team, set()).update((membership.role, one) for one in membership.people)
    return members


def _successors(
    team: TeamOutlook, added: Mapping[str, TeamOutlook], people: Mapping[str, Collection[tuple[str, str]]]
) -> Mapping[str, tuple[str, ...]]:
    """Added teams that are likely this one, with what is the same; those with all that any of them shares."""
    found = {name: tuple(_same(team, one, people)) for name, one in added.items()}
    most = max(map(len, found.values()), default=0)
    return {name: same for name, same in found.items() if len(same) == most >= _FEATURES}


def _same(team: TeamOutlook, other: TeamOutlook, people: Mapping[str, Collection[tuple[str, str]]]) -> Iterator[str]:
    if team.owner == other.owner:
        yield "owner"
    if team.cost_center == other.cost_center:
        yield "cost center"
    if (who := people.get(team.name)) and who == people.get(other.name):
        yield "members"
    if (held := _held(team)) and held == _held(other):
        yield "GPUs"


def _held(team: TeamOutlook) -> Mapping[str, tuple[int, int]]:
    return {holding.flavor: (holding.guaranteed, holding.limit) for holding in team.holdings if holding.limit}
