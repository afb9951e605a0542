"""Objects and pods that the API server refuses to controllers, from events: no status of an owner has the message."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import Final

from gpu_tenancy.base.json import text_at
from gpu_tenancy.cluster.budgets import exceeded_quota
from gpu_tenancy.cluster.pods import Manifest, namespace_of
from gpu_tenancy.cluster.workloads import Reason, Workload
from gpu_tenancy.model.kinds import kinds

# Reasons of Kubernetes and LeaderWorkerSet (FailedCreate), Trainer (TrainJobResourcesCreationFailed), JobSet
# (JobCreationFailed), KubeRay (FailedToCreateHeadPod). Kueue's CreatedWorkload says nothing about pods.
_FAILED: Final = re.compile(r"Failed\w*Creat|Creat\w*Failed")
_CREATES: Final = re.compile(r"Creat(?!edWorkload)")
_REFUSED: Final = re.compile(r'(?s)([\w.-]+) "[^"]*" is (?:forbidden|invalid): (?:Validating.*? denied request: )?(.*)')
_SECONDS: Final = len("2026-11-24T18:00:00")
_RATIO: Final = re.compile(r"(\w+) max limit to request ratio per Container is (\S+), but provided ratio is ([\d.]+)")


def rejections(
    events: Iterable[Manifest], workloads: Iterable[Workload], others: Mapping[str, str]
) -> dict[str, tuple[str, ...]]:
    """The last messages about refused creations, newest first, by owner; none if a creation has succeeded since.

    Owners, as `namespace/name`, are those of Workloads, and `others` by uid. A child without a uid here has the owner
    with which its name begins.
    """
    known = tuple(workloads)
    owners = {uid: one.label for one in known for uid in one.owners} | dict(others)
    created = {one.label: text_at(one.manifest, "metadata", "creationTimestamp") for one in known}
    names, found = {*owners.values()}, defaultdict[str, list[tuple[str, str]]](list)
    creating = (event for event in events if _CREATES.search(text_at(event, "reason")))
    for event in sorted(creating, key=happened, reverse=True):
        parts = f"{namespace_of(event)}/{text_at(event, 'involvedObject', 'name')}".split("-")
        begins = ("-".join(parts[:count]) for count in range(len(parts), 0, -1))
        owner = owners.get(text_at(event, "involvedObject", "uid"))
        if not owner:
            owner = next(filter(names.__contains__, begins), "")
            if happened(event)[:_SECONDS] < created.get(owner, "")[:_SECONDS]:  # of an earlier job with the same name
                continue
        found[owner].append((text_at(event, "reason"), text_at(event, "message")))
    failed = {
        owner: [text for _, text in takewhile(lambda one: _FAILED.search(one[0]), found[owner])] for owner in names
    }
    return {owner: tuple(dict.fromkeys(texts[:3])) for owner, texts in failed.items() if texts}


def rule_of(message: str) -> str:
    """The rule that rejects an object and its fix, without the names of the object and of the policy."""
    match = _REFUSED.search(message)
    return match[2] if match else message.removeprefix("Error creating: ")


def happened(event: Manifest) -> str:
    """Time of the last occurrence of an event."""
    times = (("series", "lastObservedTime"), ("lastTimestamp",), ("eventTime",), ("metadata", "creationTimestamp"))
    return next(filter(None, (text_at(event, *path) for path in times)), "")


def refusal(message: str, *, admitted: bool) -> Reason:
    """What is refused and why, and the fix, of a message about a refused creation."""
    match, rule = _REFUSED.search(message), rule_of(message)
    resource = match[1] if match else "objects"
    names = {name: kind.kind for kind in kinds().values() for name in (kind.resource, f"{kind.kind}.{kind.group}")}
    refused = f"its {names[resource]} is" if resource in names and resource != "pods" else f"its {resource} are"
    problem, _, fix = rule.partition("; ")
    if ratio := _RATIO.search(rule):
        name, most, provided = ratio.groups()
        problem = f"LimitRange: the limit of {name} is {float(provided):g} times the request, at most {most} is allowed"
        fix = f"raise requests.{name} to limits.{name} / {most}"
    elif exceeded := exceeded_quota(message):
        problem, fix = exceeded
    return f"{'admitted, but ' if admitted else ''}{refused} refused: {problem}", fix or "fix this error"
