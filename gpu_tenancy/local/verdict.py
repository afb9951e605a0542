"""The verdict of `tenancy local up`: which checks passed, and which parts of the platform were real."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from gpu_tenancy.base.texts import plural
from gpu_tenancy.embedded.controllers import Controller
from gpu_tenancy.embedded.controllers.table import read_rows
from gpu_tenancy.local.checks.check import Check
from gpu_tenancy.local.checks.scaling import targets
from gpu_tenancy.model.catalogue.operators import operators
from gpu_tenancy.model.plan import Plan
from gpu_tenancy.model.plan.shares import Tree

Tone: TypeAlias = Literal["good", "notice", "bad"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the checks of a stack say together.

    Attributes:
        tone: good only if every check was made and passed; a check that was not made is a notice.
        title: the counts: `26 of 28 checks passed, 2 not checked`.
        reasons: a line for each failed check, and one for each reason for which checks were not made.
    """

    tone: Tone
    title: str
    reasons: tuple[str, ...]


def verdict(checks: Sequence[Check]) -> Verdict:
    """Counts checks; a stack without any has no verdict that is good."""
    failed = [check for check in checks if check.holds is False]
    skipped: dict[str, list[str]] = {}
    for check in checks:
        if check.holds is None:
            skipped.setdefault(check.seen, []).append(check.promise)
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


@dataclass(frozen=True, slots=True)
class Composition:
    """Which parts of the platform were the real programs, and which were simulated.

    Attributes:
        real: with their versions: `Kueue 0.19.2`.
        simulated: such as `nodes and their GPUs (kwok)`.
    """

    real: tuple[str, ...]
    simulated: tuple[str, ...]

    def __str__(self) -> str:
        return f"real: {', '.join(self.real)}; simulated: {', '.join(self.simulated)}"


def composition(kubernetes: str, controllers: Iterable[Controller], plan: Plan, tree: Tree) -> Composition:
    """The parts of a platform with a stack.

    Args:
        kubernetes: version that the API server reports.
        controllers: those that run.
        plan: of the stack; the checks simulate the load of its servers.
        tree: of the stack.
    """
    versions = {one.chart: one.version.removeprefix("v") for one in controllers if one.runs}
    rows = {chart: row for chart, row in read_rows().items() if chart in versions}
    # A chart in an operator's chart, such as JobSet's in Trainer's, has a name of its own.
    own = {chart for chart, row in rows.items() if row.part or not row.operator}
    titles = {chart: chart if chart in own else operators()[row.operator].title for chart, row in rows.items()}
    real = [f"API server {kubernetes.removeprefix('v')}", "controller manager", "scheduler"]
    real += [f"{title} {versions[chart]}" for chart, title in titles.items()]
    nodes = "nodes and their GPUs" if any(flavor.resource for flavor in tree.flavors.values()) else "nodes"
    scaled = [server.scaling for team in plan.teams for server in team.servers if server.scaling]
    load = ["CPU load"] if any(scaling.cpu for scaling in scaled) else []
    metrics = dict.fromkeys(metric for scaling in scaled if not scaling.by_keda for metric in targets(scaling))
    return Composition(tuple(real), (f"{nodes} (kwok)", *load, *metrics))
