"""Changes for people, teams, data and resources, as reasons of a verdict."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from gpu_tenancy.base.grouping import grouped
from gpu_tenancy.base.quantity import format_bytes
from gpu_tenancy.base.texts import first_names, plural
from gpu_tenancy.explain.proposal import Affected, Effect
from gpu_tenancy.model.catalogue.access import READ as MAY_READ
from gpu_tenancy.model.catalogue.access import abilities
from gpu_tenancy.model.catalogue.releases import minor_of
from gpu_tenancy.model.catalogue.updates import without_indexes
from gpu_tenancy.model.outlook import Pool, StackOutlook, TeamOutlook
from gpu_tenancy.model.outlook.data import READ, WRITE, DataAccess
from gpu_tenancy.model.plan.secrets import UNDECLARED
from gpu_tenancy.review.changes import SYSTEM_NODES, Change

_Abilities: TypeAlias = Mapping[tuple[str, str], tuple[str, ...]]
"""Abilities by team (empty for the cluster) and person, the strongest first."""
LISTED: Final = 3  # people, teams and resources that a reason names before it counts the others


def _abilities(outlook: StackOutlook) -> _Abilities:
    """A person in several entries has the rights of all of them."""
    held: dict[tuple[str, str], tuple[str, ...]] = {}
    for membership in outlook.people:
        for person in membership.people:
            key = membership.team, person
            held[key] = tuple(dict.fromkeys((*held.get(key, ()), *abilities(membership.role))))
    return held


def access(fewer: StackOutlook, more: StackOutlook, verb: str) -> Iterator[str]:
    """Abilities that people `gain` or `lose`: `2 groups gain exec in ml-research (group:a, group:b)`."""
    less = _abilities(fewer)
    by_person: dict[tuple[str, str], list[str]] = {}
    for (team, person), rights in _abilities(more).items():
        different = [right for right in rights if right not in less.get((team, person), ())]
        if different:
            by_person.setdefault((person, _rights(different, verb)), []).append(team)
    merged = grouped(((rights, tuple(teams)), person) for (person, rights), teams in by_person.items())
    for (rights, teams), people in merged.items():
        verbs = f"{verb}s" if len(people) == 1 else verb
        where = first_names([team or "the cluster" for team in teams], LISTED)
        kinds = {person.partition(":")[0] for person in people}
        noun = _KINDS_OF_PEOPLE.get(kinds.pop(), "") if len(kinds) == 1 else ""
        who = plural(len(people), noun, f"{noun}s") if noun else plural(len(people), "person", "people")
        yield f"{who} {verbs} {rights} in {where} ({first_names(people, LISTED)})"


_KINDS_OF_PEOPLE: Final = {
    "group": "group",
    "user": "user",
    "serviceaccount": "service account",
    "arn": "IAM principal",
}


def _rights(rights: Sequence[str], verb: str) -> str:
    """Whoever gains more than reading can read too; whoever can no longer read can do nothing."""
    if MAY_READ in rights and verb == "lose":
        return "all access"
    *first, last = [right for right in rights if right != MAY_READ] or [MAY_READ]
    return f"{', '.join(first)} and {last}" if first else last


def _datasets(outlook: StackOutlook) -> Mapping[tuple[str, str], DataAccess]:
    """Datasets by team and place: the same folder under another name is the same right."""
    held: dict[tuple[str, str], DataAccess] = {}
    for access in outlook.data:
        key = access.team, access.place
        if access.kind == "dataset" and (key not in held or access.right == WRITE):
            held[key] = access
    return held


def data_rights(fewer: StackOutlook, more: StackOutlook, verb: str) -> Iterator[str]:
    """Rights on datasets that teams `gain` or `lose`: `Team a gains read of corpus (s3://ml-corpus/v3)`."""
    teams: dict[tuple[str, str, str], list[str]] = {}
    known = _datasets(fewer)
    for key, access in _datasets(more).items():
        other = known.get(key)
        if other is None:
            teams.setdefault((access.right, access.name, access.place), []).append(access.team)
        elif access.right == WRITE and other.right == READ:
            teams.setdefault(("write", access.name, access.place), []).append(access.team)
    for (right, name, place), names in teams.items():
        who, does = ("Team", f"{verb}s") if len(names) == 1 else ("Teams", verb)
        yield f"{who} {first_names(names, LISTED)} {does} {right} of {name} ({place})"


def data_moved(before: StackOutlook, now: StackOutlook) -> Iterator[str]:
    """Datasets at another place, whose claims are replaced, with their teams and the order of steps.

    The source of a PersistentVolume cannot change, and a claim is deleted only when no pod mounts it:
    https://kubernetes.io/docs/concepts/storage/persistent-volumes/#storage-object-in-use-protection.
    """
    old = {(access.team, access.name): access for access in before.data if access.kind == "dataset"}
    moved: dict[str, list[tuple[DataAccess, DataAccess]]] = {}
    for access in now.data:
        was = old.get((access.team, access.name))
        if access.kind == "dataset" and was and (was.place, was.cached) != (access.place, access.cached):
            moved.setdefault(access.name, []).append((was, access))
    for name, pairs in moved.items():
        was, access = pairs[0]
        target = f"Dataset {name} moves from {was.place} to {access.place}"
        if was.cached and access.cached:
            fix = "add the new place as another dataset, and remove this one"
            yield f"{target}, but Fluid does not move a cache: {fix}"
            continue
        teams = first_names([new.team for _, new in pairs], LISTED)
        users = [f"{one.team}/{workload}" for one, _ in pairs for workload in one.mounted_by]
        first = f"first end the pods of {first_names(users, LISTED)}" if users else "first end pods that mount them"
        if was.cached != access.cached:
            change = f"Dataset {name} {'gets a cache' if access.cached else 'loses its cache'}"
            yield f"{change}: {first}, then the claims of {teams} are replaced"
            continue
        instead = "or add the new place as another dataset, and remove this one later"
        yield f"{target}: {first}, then the claims of {teams} are replaced; {instead}"


def data_removed(before: StackOutlook, now: StackOutlook) -> Iterator[str]:
    """Datasets that no team has any more, storage that its team no longer has, and the fate of their data.

    The storage of a removed team is deleted with its namespace, which is another reason.
    """
    left = {_data_key(access) for access in now.data}
    gone = {_data_key(access): access for access in before.data if _data_key(access) not in left}
    teams = {team.name for team in now.teams}
    for (kind, _, name), access in sorted(gone.items()):
        if kind == "dataset":
            yield f"Dataset {name} is removed; its data stays in {access.place}"
        elif access.team in teams:
            yield f"Storage {name} of {access.team} is removed; its volume stays unless its class deletes it"


def _data_key(access: DataAccess) -> tuple[str, str, str]:
    """Teams share a dataset, but have their own storage."""
    return access.kind, access.team if access.kind == "storage" else "", access.name


def secret_reasons(before: StackOutlook, now: StackOutlook) -> Iterator[str]:
    """Cloud secrets that a team can newly read, and Secrets with another source.

    `ml-research gains a secret of the cloud: wandb (aws://eu-central-1/ml/wandb)`.
    """
    old = {(row.team, row.name): row for row in before.secrets}
    read = {(row.team, row.source) for row in before.secrets if row.right}
    for row in now.secrets:
        was = old.get((row.team, row.name))
        if row.right and (row.team, row.source) not in read:
            yield f"{row.team} gains a secret of the cloud: {row.name} ({row.source})"
        if was and was.source != row.source and UNDECLARED not in {was.source, row.source}:
            users = f"{plural(len(row.users), 'user')} ({first_names(list(row.users), LISTED)})"
            affected = f"for {users}: {row.reach}" if row.users else "and nobody uses it"
            yield f"Secret {row.name} of {row.team} changes from {was.source} to {row.source}, {affected}"


_INSTEAD: Final = {
    "cluster": "add a stack with another cluster, move the teams, then destroy this one",
    "pool": "add a second pool with the same flavor, drain this one, then remove it",
    "key": "keep the key until nothing uses it",
}
_ENDS: Final = {"cluster": "all nodes, workloads and volumes in it end", "pool": "the pods on its nodes end"}


def blocking(changes: Iterable[Change], before: StackOutlook) -> Iterator[str]:
    """Changes that Pulumi or the cloud refuses, and restarts of protected nodes: `Pulumi refuses to replace …`."""
    listed = list(changes)
    for change in listed:
        effect = change.effect
        if effect.protected and not effect.restarts:
            verb = "delete" if change.action == "delete" else "replace"
            where = effect.label or change.place
            until = "its team has no `storage`" if change.kind == "Namespace" else "`pulumi state unprotect`"
            yield f"Pulumi refuses to {verb} {where}: it is protected (until {until})"
        for reason in effect.fixed:
            yield f"{effect.label or change.place} cannot be changed: {reason}; restore the value"
    locked = restarted_pools((change for change in listed if change.effect.protected), before)
    if names := sorted({pool for fields, pools in locked.items() if fields[0] for pool in pools}):
        yield f"Nodes of protected pools would restart: {', '.join(names)} (until `pulumi state unprotect`)"


def version_refused(before: StackOutlook, now: StackOutlook, runs: str) -> Iterator[str]:
    """A version of Kubernetes to which no cloud upgrades from the running one (`runs`), else from the base's."""
    known = runs.removeprefix("v") or (before.kubernetes if before.cluster == now.cluster else "")
    if not known or not now.kubernetes:
        return
    old, new = minor_of(known), minor_of(now.kubernetes)
    change = f"Kubernetes 1.{old} to {now.kubernetes}{' of the running cluster' if runs else ''}"
    service = now.cluster.partition(" ")[0]
    if new < old:
        yield f"{change} is a downgrade, which {service} refuses; set cluster.create.version: 1.{old}"
    elif new > old + 1:
        rule = f"skips 1.{old + 1}, and {service} upgrades one minor version at a time"
        yield f"{change} {rule}; set cluster.create.version: 1.{old + 1}, deploy, and go on from there"


def unsure(changes: Iterable[Change]) -> Iterator[str]:
    """Inputs that the cloud never changes and that may change; a preview does not know."""
    for change in changes:
        for reason in change.effect.unsure:
            where = change.effect.label or change.place
            yield f"{where} keeps its first value if the new one differs (unknown before deployment): {reason}"


def losses(lost: Sequence[Change], before: StackOutlook) -> Iterator[str]:
    """Deletions and replacements: clusters, pools and others whose row has `what`; the rest together by action."""
    clusters = any(change.effect.what == "cluster" for change in lost)
    for change in lost:
        if change.effect.what and not (clusters and change.effect.what == "pool"):
            yield _loss(change, before)
    for action, word in (("delete", "deleted"), ("replace", "replaced")):
        places = [change.place for change in lost if change.action == action and not change.effect.what]
        if places:
            yield f"{plural(len(places), 'resource')} will be {word}: {first_names(places, LISTED)}"


def _loss(change: Change, before: StackOutlook) -> str:
    effect, replaced = change.effect, change.action == "replace"
    if effect.stays:
        return f"The {effect.label} stays in the cloud, but is no longer managed{' and gets a successor' * replaced}"
    lies = list(_lies_on([pool for pool in before.pools if effect.label == f"pool {pool.name}"], before))
    if effect.what == "cluster":
        lies += [plural(len(before.pools), "pool"), plural(len(before.teams), "team")]
    if replaced:
        lies.append("deleted first" if effect.deleted_first else "created before the old one is deleted")
    listed = f" ({', '.join(lies)})" if lies else ""
    title = f"{'Replaces' if replaced else 'Deletes'} the {effect.label}{listed}"
    ends = _ENDS.get(effect.what, effect.loses)
    if effect.label == SYSTEM_NODES and replaced:
        waits = "; until new nodes run, Kueue does not run and admits nothing" if effect.deleted_first else ""
        return f"{title}: {_because(change)}{waits}"
    parts = ", and ".join(filter(None, (_because(change) if replaced else "", ends)))
    instead = f"; instead, {_INSTEAD[effect.what]}" if effect.what in _INSTEAD else ""
    return f"{title}: {parts}{instead}" if parts or instead else title


def _because(change: Change) -> str:
    fields = [field for field in change.fields if field.replaces]
    sure = any("[unknown" not in field.before + field.after for field in fields)
    paths = dict.fromkeys(without_indexes(field.path.split(".")) for field in fields)
    return f"{_changes(list(paths))}{'' if sure else ' to what only the cloud knows'}"


def _changes(paths: Sequence[str]) -> str:
    return f"{first_names(paths, LISTED)} {'changes' if len(paths) == 1 else 'change'}"


def restarted_pools(changes: Iterable[Change], before: StackOutlook) -> Mapping[tuple[str, ...], Sequence[str]]:
    """Pools (and `system nodes`) whose nodes restart, by changed inputs; the first is empty if they only may."""
    found: dict[tuple[str, ...], dict[str, None]] = {}
    for change in changes:
        effect, every = change.effect, [*(pool.name for pool in before.pools), SYSTEM_NODES]
        labels = every if effect.label.startswith("cluster ") else [effect.label.removeprefix("pool ")]
        for fields in (effect.restarts, effect.may_restart and ("", *effect.may_restart)):
            if fields and effect.label:
                found.setdefault(fields, {}).update(dict.fromkeys(labels))
    return {fields: sorted(pools) for fields, pools in found.items()}


def restarts(changes: Iterable[Change], before: StackOutlook) -> Iterator[str]:
    """Nodes that the cloud replaces one after the other: pools, nodes, GPUs, teams and the inputs that cause it."""
    for fields, names in restarted_pools(changes, before).items():
        pools = [name for name in names if name != SYSTEM_NODES]
        where = [f"pool{'s' * (len(pools) > 1)} {', '.join(pools)}"] if pools else []
        where += ["the system nodes"] if SYSTEM_NODES in names else []
        listed = ", ".join(_lies_on([pool for pool in before.pools if pool.name in pools], before))
        nodes = f"the nodes of {' and '.join(where)}" if pools else where[0]
        on = f"{nodes} ({listed})" if listed else nodes
        if fields[0]:
            hold = f"; to avoid it, run `tenancy cluster hold {''.join(pools)}` and deploy when its jobs have ended"
            yield f"Restarts {on}: {_changes(fields)}, and their pods are evicted{hold if len(pools) == 1 else ''}"
        else:
            yield f"May restart {on}: the effect of {first_names(fields[1:], LISTED)} on running nodes is unknown"


def _lies_on(pools: Sequence[Pool], before: StackOutlook) -> Iterator[str]:
    if not pools:
        return
    up_to = "" if all(pool.nodes.minimum == pool.nodes.maximum for pool in pools) else "up to "
    yield f"{up_to}{plural(sum(pool.nodes.maximum for pool in pools), 'node')}"
    if gpus := sum(pool.gpus * pool.nodes.maximum for pool in pools if pool.resource):
        yield f"{up_to}{plural(gpus, 'GPU')}"
    flavors = {pool.flavor for pool in pools}
    held = {(team.name, share.scheduler) for team in before.teams for share in team.holdings if share.flavor in flavors}
    teams = [team.name for team in before.teams if {(team.queue, "Kueue"), (team.name, "Volcano")} & held]
    if teams:
        yield f"used by {first_names(teams, LISTED)}"


_INSTEAD_FOR_TEAMS: Final = (
    "to keep what runs, first deploy a change that only adds the new, let people move, then remove the old"
)
_FEATURES: Final = 2  # equal ones of owner, cost center, members and GPUs of a likely successor


def claims_lost(before: StackOutlook, now: StackOutlook, effect: Effect | None) -> Iterator[str]:
    """Removed teams whose namespace has PersistentVolumeClaims, which are deleted with it; the removal is refused.

    The base has the claims that the stack declares, the effect on a running cluster the claims that people have made.
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
    """Removed teams with likely successors, and teams that move to another cohort.

    Namespace, ClusterQueue and LocalQueue have the team's name, which cannot change in Kubernetes: a renamed team is a
    removed and an added one: `Team a is removed, likely renamed to b (same owner, members): …`.
    """
    old, new = ({team.name: team for team in outlook.teams} for outlook in (before, now))
    added = {name: team for name, team in new.items() if name not in old}
    removed = {name: team for name, team in old.items() if name not in new}
    people = {**_people(before), **{name: who for name, who in _people(now).items() if name in new}}
    likely: dict[str, Mapping[str, tuple[str, ...]]] = {}
    for name, team in removed.items():
        alike = {one: tuple(_same(team, other, people)) for one, other in added.items()}
        most = max(map(len, alike.values()), default=0)
        likely[name] = {one: same for one, same in alike.items() if len(same) == most >= _FEATURES}
    taken = Counter(name for successors in likely.values() for name in successors)
    for name, successors in sorted(likely.items()):
        if len(successors) > 1:
            what = f", likely split into {first_names(list(successors), LISTED)}"
        elif merged := [one for one in successors if taken[one] > 1]:
            what = f", likely merged into {merged[0]}"
        else:
            what = "".join(f", likely renamed to {one}" for one in successors)
        same = f" (same {', '.join(next(iter(successors.values())))})" if successors else ""
        ends = "its namespace is deleted with its workloads, and its metrics end under this name"
        yield f"Team {name} is removed{what}{same}: {ends}{f'; {_INSTEAD_FOR_TEAMS}' if successors else ''}"
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


def _same(team: TeamOutlook, other: TeamOutlook, people: Mapping[str, Collection[tuple[str, str]]]) -> Iterator[str]:
    if team.owner == other.owner:
        yield "owner"
    if team.cost_center == other.cost_center:
        yield "cost center"
    if (who := people.get(team.name)) and who == people.get(other.name):
        yield "members"
    if (held := _held(team)) and held == _held(other):
        yield "GPUs"
    if team.queue == other.queue:
        yield "queue"


def _held(team: TeamOutlook) -> Mapping[str, tuple[int, int]]:
    return {holding.flavor: (holding.guaranteed, holding.limit) for holding in team.holdings if holding.limit}


_LATER: Final = "to avoid it, deploy after they end, or lower the other team's guarantee in a later change"


def work_lost(effect: Effect) -> Iterator[str]:
    """Running workloads that a change ends, so that it needs a review."""
    for team, ended in _by_team(effect.preempted):
        restarted = sum(one.again for one in ended)
        more = f"; {restarted} of them will be admitted again at once" if restarted else ""
        preempting = sorted({one.by.partition("/")[0] for one in ended} - {""})
        by = f" for {first_names(preempting, LISTED)}" if preempting else ""
        yield f"{_running(ended)} of {team} will be preempted{by} ({_size(ended)}){more}; {_LATER}"
    for team, ended in _by_team(effect.deleted):
        yield f"Namespace {team} will be deleted with {_running(ended)} ({_size(ended)})"
    yield from _stopped(effect)
    for team, never in _by_team(effect.never):
        waits = f"{plural(len(never), 'workload')} of {team} can never be admitted any more ({_gpus(never)})"
        yield f"{waits}: {never[0].label}: {never[0].why}"
    for flavor, pods in effect.pods_on_removed_flavors.items():
        yield f"{plural(len(pods), 'running pod')} on nodes of removed flavor {flavor}: {first_names(pods, LISTED)}"
    for pool in effect.smaller_pools:
        ends = f"the pods of at least {plural(pool.busy - pool.nodes, 'node')} end"
        yield (
            f"Pool {pool.name} will have at most {plural(pool.nodes, 'node')}, and {pool.busy} run pods with GPUs"
            f" ({first_names(pool.pods, LISTED)}): {ends}; to avoid it, run"
            f" `tenancy cluster hold {pool.name}` and deploy when they have ended"
        )
    for one in effect.exceeded:
        yield f"{one.place}: {one.used} {one.what} in use, {one.bound} allowed; nothing is stopped, new pods wait"
    for one in effect.refused:
        pods = f"{plural(len(one.pods), 'pod')} of {one.team} will be refused if created again"
        yield f"{pods}: {one.why} ({first_names(one.pods, LISTED)})"
    if effect.claims_unread:
        yield "Claims in namespaces that are deleted are unknown: you may not list PersistentVolumeClaims"
    yield from (f"Running workloads not simulated: {reason}" for reason in effect.not_simulated)


def _stopped(effect: Effect) -> Iterator[str]:
    ways = (effect.restarted, "will restart with their nodes"), (effect.idle, "will be stopped, their GPUs are idle")
    for affected, how in ways:
        for team, ended in _by_team(affected):
            names = first_names([one.label for one in ended], LISTED)
            lost = "they lose their work since their last checkpoint"
            yield f"{_running(ended)} of {team} {how} ({_size(ended)}): {names}; {lost}"


def work_changed(effect: Effect) -> Iterator[str]:
    """Other effects on the running and pending workloads of a cluster."""
    if not effect.preempted and not effect.deleted:
        yield f"No running workload will be preempted ({effect.running} running)"
    for part, what in (
        (effect.admitted, "will be admitted"),
        (effect.delayed, "will stay pending because of the change"),
    ):
        for team, pending in _by_team(part):
            yield f"{plural(len(pending), 'pending workload')} of {team} {what} ({_gpus(pending)})"
    for team, later in _by_team(effect.later):
        waits = f"{plural(len(later), 'pending workload')} of {team} will wait longer ({_gpus(later)})"
        yield f"{waits}: {later[0].label}: {later[0].why}; how long is unknown, since Kueue knows no durations"


def _by_team(affected: Iterable[Affected]) -> Iterable[tuple[str, list[Affected]]]:
    return sorted(grouped((one.team, one) for one in affected).items())


def _running(ended: list[Affected]) -> str:
    return plural(len(ended), "running workload")


def _size(ended: list[Affected]) -> str:
    return f"{_gpus(ended)}, oldest {max(one.hours for one in ended)} h"


def _gpus(affected: list[Affected]) -> str:
    return plural(sum(one.amount for one in affected), "GPU")
