"""Tables, curves, sentences and data of a replay, or of two compared replays."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gpu_tenancy.base.texts import DASH, hours_text, plural
from gpu_tenancy.pages.bars import HUES
from gpu_tenancy.pages.tables import Cell, Table, Tone, columns, compared, row
from gpu_tenancy.simulation.outcome import Comparison, Curve, Group, Outcome
from gpu_tenancy.whatif.charts import Band, Chart

_DAY: Final = 86_400.0
_HOUR: Final = 3600.0
_MINUTE: Final = 60.0
VERDICTS: Final[Mapping[str, Tone]] = {"loses": "bad", "both": "notice", "gains": "good"}


@dataclass(frozen=True, slots=True)
class Replayed:
    """Result of `tenancy replay`."""

    stack: str
    source: str
    outcome: Outcome
    left_out: dict[str, int]  # entries of the file without a start and an end, by the reason
    not_simulated: tuple[str, ...]  # features of the stack
    against: Comparison | None  # the stack at another ref, or without `idle`; None without either
    teams: tuple[str, ...]


def time_text(seconds: float) -> str:
    """`0 s`, `45 s`, `12 min`, `3.5 h`, `12 d`."""
    if seconds < _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    return f"{seconds / _HOUR:.1f} h" if seconds < 2 * _DAY else f"{seconds / _DAY:.1f} d"


def headline(replayed: Replayed) -> str:
    """The result in one line."""
    outcome = replayed.outcome
    if replayed.against is None:
        waits = outcome.total.waits
        half, most = waits.quantile(0.5), waits.quantile(0.95)
        median = f"half of them wait at most {time_text(half)}" if half else "at least half of them do not wait"
        jobs = f"{plural(outcome.jobs, 'job')} in {time_text(outcome.arrivals)}"
        return f"{jobs}: {median}, 95 % wait at most {time_text(most)}"
    of_teams = replayed.against.verdicts.items()
    changed = {kind: [team for team, verdict in of_teams if verdict == kind] for kind in VERDICTS}
    parts = [f"{', '.join(teams)} {_WORDS[kind][len(teams) > 1]}" for kind, teams in changed.items() if teams]
    return "; ".join(parts) or f"No team is better or worse off than {replayed.against.place}"


_WORDS: Final = {"loses": ("loses", "lose"), "both": ("gains and loses", "gain and lose"), "gains": ("gains", "gain")}


def tone(replayed: Replayed) -> Tone:
    """Tone of the headline."""
    verdicts = replayed.against.verdicts.values() if replayed.against else ()
    return "bad" if "loses" in verdicts else "notice" if "both" in verdicts or replayed.outcome.total.never else "good"


def sentences(replayed: Replayed) -> Iterator[str]:
    """Results that the tables do not show."""
    outcome, total = replayed.outcome, replayed.outcome.total
    for flavor, gpus, share in outcome.utilisation():
        if share:
            yield f"{flavor}: {share:.0%} of {plural(gpus, 'GPU')} held while jobs arrived"
    if total.preemptions:
        yield (
            f"{plural(total.preemptions, 'preemption')}; {hours_text(total.lost_gpu_hours)} of"
            f" {hours_text(total.gpu_hours)} GPU-hours were lost to them"
        )
    if total.never:
        yield f"{plural(total.never, 'job')} can never start: the queues never have so much"
    if outcome.dealt:
        yield f"{plural(outcome.dealt, 'job')} name no team, and are dealt to the teams by their guarantees"
    for reason, count in {**replayed.left_out, **outcome.left_out}.items():
        yield f"{plural(count, 'job')} left out: {reason}"
    if outcome.livelocks:
        yield f"{plural(outcome.livelocks, 'time')} jobs preempted one another endlessly"


_HEADS: Final = (
    "jobs#",
    "wait, median#",
    "wait, 95 %#",
    "longest wait#",
    "never start#",
    "GPU-hours#",
    "preemptions#",
    "GPU-hours lost#",
)


def _beside(replayed: Replayed, make: Callable[[Outcome], Table]) -> Table:
    against = replayed.against
    return compared(make(replayed.outcome), make(against.before) if against else None)


def teams_table(replayed: Replayed) -> Table:
    """Waits, GPU-hours and preemptions by team, and their changes."""
    changes: Mapping[str, str] = replayed.against.verdicts if replayed.against else {}
    known = replayed.outcome.teams
    names = [team for team in replayed.teams if team in known] + [team for team in changes if team not in known]

    def of_teams(outcome: Outcome) -> Table:
        found = outcome.teams
        rows = [row(team, *_texts(found.get(team, Group())), team=team) for team in names]
        rows += [row("all teams", *_texts(outcome.total), sums=True)] if len(names) > 1 else []
        return Table("teams", "By team", columns("team", *_HEADS), tuple(rows))

    found = _beside(replayed, of_teams)
    if not changes:
        return found
    words = {"same": "as before", "both": "gains and loses"}
    verdicts = (changes[team] for team in names)
    ends = [*(Cell(words.get(verdict, verdict), tone=VERDICTS.get(verdict)) for verdict in verdicts), Cell("")]
    rows = (replace(line, cells=(*line.cells, end)) for line, end in zip(found.rows, ends, strict=False))
    return replace(found, columns=(*found.columns, *columns("change")), rows=tuple(rows))


def _texts(group: Group) -> list[str]:
    waits = group.waits
    shown = [time_text(waits.quantile(0.5)), time_text(waits.quantile(0.95)), time_text(waits.longest)]
    return [
        f"{group.jobs:,}",
        *(shown if waits.count else [DASH] * 3),
        f"{group.never:,}",
        hours_text(group.gpu_hours),
        f"{group.preemptions:,}",
        hours_text(group.lost_gpu_hours),
    ]


def preemptions_table(replayed: Replayed) -> Table:
    """Preemptions by preempting and preempted team."""
    now, before = replayed.outcome.preempted_by, replayed.against.before.preempted_by if replayed.against else ()
    pairs = sorted(dict.fromkeys((*now, *before)), key=lambda pair: -now[pair])

    def of_pairs(outcome: Outcome) -> Table:
        rows = (row(team, by, f"{outcome.preempted_by[by, team]:,}", team=team) for by, team in pairs)
        heads = columns("team", "preempted by", "preemptions#")
        return Table("preempted", "Preemptions by team", heads, tuple(rows), keys=2)

    return _beside(replayed, of_pairs)


def usage_charts(replayed: Replayed) -> Iterator[Chart]:
    """GPUs in use of each flavor."""
    outcome, against = replayed.outcome, replayed.against
    for number, (name, flavor) in enumerate(outcome.flavors.items()):
        before = against.before.flavors.get(name) if against else None
        then = before.held.means(against.before.arrivals) if before and against else ()
        now = flavor.held.means(outcome.arrivals)
        note = f"in use, of {flavor.gpus}"
        gpus = max(flavor.gpus, before.gpus if before else 0)
        yield Chart(name, note, number % HUES, f"{name}: {_average(now)} {note}", [Band(name, "s0", now)], gpus, then)


def pending_charts(replayed: Replayed) -> Iterator[Chart]:
    """GPUs that each team's pending jobs request."""
    outcome, against = replayed.outcome, replayed.against
    for number, team in enumerate(replayed.teams):
        now = outcome.waiting.get(team, Curve()).means(outcome.arrivals)
        then = against.before.waiting.get(team, Curve()).means(against.before.arrivals) if against else ()
        note = f"pending, at most {max(now):.0f}"
        yield Chart(team, note, number % HUES, f"{team}: {_average(now)} {note}", [Band(team, "s0", now)], before=then)


def _average(amounts: Sequence[float]) -> str:
    return f"{sum(amounts) / len(amounts):.1f} GPUs on average"


def replayed_data(replayed: Replayed) -> dict[str, object]:
    """The result for programs; durations in seconds."""
    found = _data(replayed.outcome)
    against = replayed.against
    return {
        "stack": replayed.stack,
        "source": replayed.source,
        **found,
        "leftOut": {**replayed.left_out, **replayed.outcome.left_out},
        "notSimulated": list(replayed.not_simulated),
        "against": against and {"ref": against.ref, **_data(against.before), "teams": against.verdicts},
    }


def _data(outcome: Outcome) -> dict[str, object]:
    return {
        "jobs": outcome.jobs,
        "arrivals": outcome.arrivals,
        "groups": [
            {
                "team": team,
                "priority": name or None,
                "jobs": group.jobs,
                "waitMedian": group.waits.quantile(0.5),
                "wait95": group.waits.quantile(0.95),
                "waitLongest": group.waits.longest,
                "never": group.never,
                "gpuHours": group.gpu_hours,
                "preemptions": group.preemptions,
                "lostGpuHours": group.lost_gpu_hours,
            }
            for (team, name), group in outcome.groups.items()
        ],
        "flavors": [{"flavor": name, "gpus": gpus, "held": share} for name, gpus, share in outcome.utilisation()],
        "preempted": [{"team": team, "by": by, "count": count} for (by, team), count in outcome.preempted_by.items()],
        "leftOut": dict(outcome.left_out),
        "dealt": outcome.dealt,
    }
