"""A timeline or a replay as a self-contained HTML page: no external resources, no scripts, light and dark."""

from dataclasses import dataclass
from typing import Final

from gpu_tenancy.model.outlook import outlook
from gpu_tenancy.pages.bars import Branch
from gpu_tenancy.pages.tables import FOLD, Table, environment, policy
from gpu_tenancy.review.charts import Drawing
from gpu_tenancy.whatif import narrative, replay
from gpu_tenancy.whatif.charts import FEW, HEIGHT, WIDTH, Chart, Lanes, flavor_hues, job_lanes, legend, usage_charts
from gpu_tenancy.whatif.narrative import amounts_table, jobs_table, pending_table, preempted_table, usage_table
from gpu_tenancy.whatif.replay import Replayed
from gpu_tenancy.whatif.timeline import Timeline

_SENTENCES: Final = 8  # sentences of the verdict that are not folded
_TREE: Final = ("guaranteed", "may borrow", "limit", "no guarantee", "never lent", "lent while idle", "in use")


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the page, with its parts in this order."""

    name: str  # id in links
    title: str
    lanes: Lanes | None = None
    charts: tuple[Chart, ...] = ()
    columns: int = 1
    tree: Branch | None = None
    keys: tuple[str, ...] = ()  # entries of the legend
    teams: tuple[tuple[str, str], ...] = ()  # names and CSS classes of the legend's colours
    tables: tuple[Table, ...] = ()
    twins: tuple[Table, ...] = ()  # tables with the numbers of the pictures
    steps: tuple[tuple[str, str, list[str]], ...] = ()  # label, numbers of jobs, and events
    empty: str = ""  # text without pictures and rows
    alerts: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def timeline_page(timeline: Timeline) -> str:
    """The page of a scenario, or of a load on all queues."""
    load = (
        "Every team requests its limit, in jobs of one GPU, or of CPUs with their share of memory; larger jobs may not"
        " fit as well. "
    )
    note = (
        "The simulation covers the admission of Kueue 0.19, with the maximum number of nodes in each pool. It does not"
        " cover the scheduling of pods to nodes."
    )
    livelocks = tuple(f"{label}: {narrative.livelock(queues)}" for label, queues in timeline.restless)
    limits = _limits(timeline.left_out, note if timeline.scenario else load + note, livelocks)
    pending = Section("waiting", "Pending jobs", tables=(pending_table(timeline),), empty="No jobs are pending.")
    used = {(held.team, held.flavor, "Kueue"): held.runs for held in timeline.held}
    usage = Section(
        "who",
        "Usage at the end" if timeline.scenario else "Usage",
        tree=Drawing(outlook(timeline.tree.stack), used=used).tree,
        keys=_TREE,
        tables=tuple(
            usage_table(timeline.held_of_counted, step, scenario=timeline.scenario) for step in timeline.steps[-1:]
        ),
    )
    sections = [usage, pending]
    if timeline.scenario:
        table = preempted_table(timeline)
        gone = Section("gone", table.title, tables=(table,), empty="No jobs were preempted.")
        steps = Section("steps", "Steps", steps=tuple(narrative.step_lines(timeline)))
        sections = [_over_time(timeline), *sections, gone, steps]
    return _rendered(
        [*sections, limits],
        stack=timeline.stack,
        title=timeline.title,
        about=f"environment {timeline.tree.stack.environment}",
        tone=narrative.tone(timeline),
        headline=narrative.headline(timeline),
        sentences=[*narrative.sentences(timeline), *timeline.notes],
        command="whatif",
    )


def replay_page(replayed: Replayed) -> str:
    """The page of a replay."""
    against, span = replayed.against, replay.time_text(replayed.outcome.arrivals)
    teams = replay.teams_table(replayed)
    preempted = replay.preemptions_table(replayed)
    axis = (f"From left to right: {span}.", *((f"Dashed: {against.place}.",) if against else ()))
    waits = "Waits are from submission to the first start. Medians and 95 % are exact to 2 %."
    note = (
        "Jobs start when Kueue admits them and run for as long as they ran. Nodes that have to be created, images that"
        " are pulled, pods that do not fit on any one node, and jobs that a person would have submitted later or"
        " elsewhere are not covered. Pools have their maximum number of nodes."
    )
    used, pending = tuple(replay.usage_charts(replayed)), tuple(replay.pending_charts(replayed))
    return _rendered(
        [
            Section("teams", teams.title, tables=(teams,), notes=(waits,)),
            Section("held", "GPUs in use", charts=used, notes=axis),
            Section("waiting", "Pending GPUs", charts=pending, notes=axis),
            Section("preempted", preempted.title, tables=(preempted,), empty="No jobs were preempted."),
            _limits(replayed.not_simulated, note),
        ],
        stack=replayed.stack,
        title=f"replay of {replayed.source}",
        about=f"{replayed.outcome.jobs} jobs, {span}{f', compared with the stack {against.place}' if against else ''}",
        tone=replay.tone(replayed),
        headline=replay.headline(replayed),
        sentences=list(replay.sentences(replayed)),
        command="replay",
    )


def _over_time(timeline: Timeline) -> Section:
    hues = flavor_hues(timeline)
    flavors = tuple((name, f"h{hue}") for name, hue in hues.items()) if len(hues) > 1 else ()
    teams = (*flavors, *((team, f"grey {shade}") for team, shade in legend(timeline)))
    if not timeline.steps:
        return Section("time", "Jobs over time", keys=("capacity",), teams=teams, empty="There are no steps.")
    note = (
        "Each column is a step and shows the state after it, when no more jobs are admitted or preempted. Steps have no"
        " duration."
    )
    return Section(
        "time",
        "Jobs over time",
        lanes=job_lanes(timeline),
        charts=tuple(usage_charts(timeline)),
        columns=len(timeline.steps),
        keys=("running", "pending", "preemption", "capacity"),
        teams=teams,
        twins=(jobs_table(timeline), amounts_table(timeline)),
        notes=(note,),
    )


def _limits(left_out: tuple[str, ...], note: str, alerts: tuple[str, ...] = ()) -> Section:
    missing = "This stack uses features that are not simulated, so Kueue may decide otherwise:"
    empty = missing if left_out else "All features that this stack uses are simulated."
    return Section("limits", "Limits of the simulation", alerts=alerts, empty=empty, lines=left_out, notes=(note,))


def _rendered(sections: list[Section], **page: object) -> str:
    template = environment("gpu_tenancy.whatif").get_template("page.html.j2")
    sizes = {"shown": _SENTENCES, "fold": FOLD, "few": FEW, "width": WIDTH, "height": HEIGHT}
    return template.render(page=page, sections=sections, folded=_folded, policy=policy(), **sizes)


def _folded(cohort: Branch, whole: int) -> bool:
    return whole > FOLD and cohort.depth > 0
