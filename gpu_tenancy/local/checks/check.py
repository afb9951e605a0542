"""The result of one check on a cluster, the verdict of all, and the temporary nodes of checks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from gpu_tenancy.base.grouping import grouped
from gpu_tenancy.base.json import Json
from gpu_tenancy.base.quantity import format_amounts
from gpu_tenancy.base.texts import plural
from gpu_tenancy.embedded.nodes import NodeShape
from gpu_tenancy.model.plan.environment import Flavor
from gpu_tenancy.model.plan.pools import NodeTaint

CHECK: Final = "gpu-tenancy.dev/check"  # label of the temporary nodes, and their taint, which keeps other pods off them
IMAGE: Final = "registry.example.com/check:1"


@dataclass(frozen=True, slots=True)
class Check:
    """A checked fact, in the present tense, and its observation."""

    promise: str
    seen: str  # the reason if it was not checked
    holds: bool | None  # None if it was not checked
    message: str = ""  # of the API server or a controller


Tone: TypeAlias = Literal["good", "notice", "bad"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict of a stack's checks: the tone is good only if every check was made and passed."""

    tone: Tone  # a check that was not made is a notice
    title: str  # `26 of 28 checks passed, 2 not checked`
    reasons: tuple[str, ...]  # a line for each failed check, and for each reason for which checks were not made


def verdict(checks: Sequence[Check]) -> Verdict:
    """Counts checks; the verdict of no checks is not good."""
    failed = [check for check in checks if check.holds is False]
    skipped = grouped((check.seen, check.promise) for check in checks if check.holds is None)
    unchecked = sum(map(len, skipped.values()))
    passed = len(checks) - len(failed) - unchecked
    if checks and passed == len(checks):
        return Verdict("good", f"All {plural(passed, 'check')} passed", ())
    counts = [
        f"{passed} of {plural(len(checks), 'check')} passed",
        *([f"{len(failed)} failed"] if failed else ()),
        *([f"{unchecked} not checked"] if unchecked else ()),
    ]
    reasons = [f"failed: {check.promise}" for check in failed]
    reasons += [f"{len(promises)} not checked: {reason}" for reason, promises in skipped.items()]
    return Verdict("bad" if failed else "notice", ", ".join(counts), tuple(reasons))


def temporary_node(flavor: Flavor, name: str, amounts: Mapping[str, int]) -> NodeShape:
    """A node of a flavor for the pods of checks, with these amounts of resources."""
    taints = (*flavor.taints, NodeTaint(CHECK, "", "NoSchedule"))
    labels = {**flavor.node_labels, CHECK: "true"}
    return NodeShape(f"check-{name}", labels, taints, {**format_amounts(amounts), "pods": "10"})


def on_temporary_nodes(flavor: Flavor, *, tolerate: bool = True) -> dict[str, Json]:
    """Fields of a pod for the temporary nodes of a flavor; with `tolerate`, it tolerates the flavor's own taints."""
    tolerated = [CHECK, *(taint.key for taint in flavor.taints if tolerate)]
    return {
        "terminationGracePeriodSeconds": 0,
        "nodeSelector": {**flavor.node_labels, CHECK: "true"},
        "tolerations": [{"key": key, "operator": "Exists"} for key in tolerated],
    }
