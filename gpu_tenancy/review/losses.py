"""What a change deletes or replaces in the cloud, what lies on it, and what to do instead, as reasons of a verdict."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from gpu_tenancy.base.texts import counted, first_names, plural
from gpu_tenancy.model.outlook import Pool, StackOutlook
from gpu_tenancy.review.changes import Change
from gpu_tenancy.review.reasons import LISTED
from gpu_tenancy.review.replacements import without_indexes

_INSTEAD: Final = {
    "cluster": "add a stack with another cluster, move the teams, then destroy this one",
    "pool": "add a second pool with the same flavor, drain this one, then remove it",
    "key": "keep the key until nothing uses it",
}
"""By kind of resource, how to avoid the loss."""
_ENDS: Final = {"cluster": "all nodes, workloads and volumes in it end", "pool": "the pods on its nodes end"}


def blocking(changes: Iterable[Change]) -> Iterator[str]:
    """Changes that Pulumi or the cloud refuses: `Pulumi refuses to replace …`, `agentPoolProfiles.0.vmSize …`."""
    for change in changes:
        effect = change.effect
        if effect.protected:
            verb = "delete" if change.action == "delete" else "replace"
            where = effect.label or change.place
            until = "its team has no `storage`" if change.kind == "Namespace" else "`pulumi state unprotect`"
            yield f"Pulumi refuses to {verb} {where}: it is protected (until {until})"
        for reason in effect.fixed:
            yield f"{effect.label or change.place} cannot be changed: {reason}; restore the value"


def unsure(changes: Iterable[Change]) -> Iterator[str]:
    """Inputs that the cloud never changes, and of which a preview does not know whether they change."""
    for change in changes:
        for reason in change.effect.unsure:
            where = change.effect.label or change.place
            yield f"{where} keeps its first value if the new one differs (unknown before deployment): {reason}"


def losses(lost: Sequence[Change], before: StackOutlook) -> Iterator[str]:
    """Reasons for clusters, pools and what else has a row with `what`; the others together by action.

    Args:
        lost: deletions and replacements.
        before: summary of what is deployed, for what lies on a pool.
    """
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
    lies = list(_lies_on(change, before))
    if replaced:
        lies.append("deleted first" if effect.deleted_first else "created before the old one is deleted")
    listed = f" ({', '.join(lies)})" if lies else ""
    title = f"{'Replaces' if replaced else 'Deletes'} the {effect.label}{listed}"
    ends = _ENDS.get(effect.what, effect.loses)
    if effect.label == "system nodes" and replaced:
        waits = "; until new nodes run, Kueue does not run and admits nothing" if effect.deleted_first else ""
        return f"{title}: {_because(change)}{waits}"
    parts = ", and ".join(filter(None, (_because(change) if replaced else "", ends)))
    instead = f"; instead, {_INSTEAD[effect.what]}" if effect.what in _INSTEAD else ""
    return f"{title}: {parts}{instead}" if parts or instead else title


def _because(change: Change) -> str:
    fields = [field for field in change.fields if field.replaces]
    paths = list(dict.fromkeys(without_indexes(field.path.split(".")) for field in fields))
    names = first_names(paths, LISTED)
    sure = any("[unknown" not in field.before + field.after for field in fields)
    return f"{names} {'changes' if len(paths) == 1 else 'change'}{'' if sure else ' to what only the cloud knows'}"


def _lies_on(change: Change, before: StackOutlook) -> Iterator[str]:
    """Nodes and GPUs of a pool, and the teams with a share of its flavor."""
    pool = next((pool for pool in before.pools if change.effect.label == f"pool {pool.name}"), None)
    if pool is None:
        if change.effect.what == "cluster":
            yield plural(len(before.pools), "pool")
            yield plural(len(before.teams), "team")
        return
    yield from _size(pool)
    teams = [team.name for team in before.teams if any(share.flavor == pool.flavor for share in team.holdings)]
    if teams:
        yield f"used by {first_names(teams, LISTED)}"


def _size(pool: Pool) -> Iterator[str]:
    least, most = pool.nodes.minimum, pool.nodes.maximum
    up_to = "" if least == most else "up to "
    yield f"{up_to}{plural(most, 'node')}"
    if pool.gpus and pool.resource:
        yield f"{up_to}{counted(pool.gpus * most, pool.resource)}"
