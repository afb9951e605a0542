"""Compares the simulation's result with Kueue's."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from benchmarks.agree.drawing import Data
from benchmarks.agree.playing import CAREFUL, QUICK, Pace, Played
from gpu_tenancy.kueue import Settled, run
from gpu_tenancy.kueue.scenarios import read_steps, read_tenancy

# `livelock`: neither settles. `unstable`: plays of the scenario differ. Neither is counted.
Verdict: TypeAlias = Literal["agrees", "differs", "unstable", "livelock"]
Play: TypeAlias = Callable[[Sequence[Data], Pace], Sequence[Played]]

REPLAYS = 2  # more plays of a scenario in which simulation and Kueue differ


@dataclass(frozen=True, slots=True)
class Compared:
    """One scenario."""

    scenario: Data
    verdict: Verdict
    steps: tuple[bool, ...]  # whether the states agree, for each played step
    preemptions: tuple[bool, ...]  # whether preempted workloads, preemptors and reasons agree, likewise
    livelock: bool  # whether the simulation does not settle
    plays: tuple[Played, ...]  # plays that count: all, or the careful ones if they agree with one another

    @property
    def counted(self) -> bool:
        """Whether it counts in the agreement."""
        return self.verdict in {"agrees", "differs"}

    @property
    def recording(self) -> Data:
        """The scenario with Kueue's states, in the form of the recordings."""
        played = self.plays[-1]
        return {
            **self.scenario,
            "observed": played.observed,
            "stable": self.verdict != "unstable",
            "passes": len(self.plays),
            "trace": played.trace,
            "reservationTie": played.tie,
            "settled": played.settled,
        }


def compare(scenarios: Sequence[Data], play: Play) -> list[Compared]:
    """Plays scenarios; plays again if simulation and Kueue differ, because the first play is in a hurry."""
    first = [compared(scenario, (played,)) for scenario, played in zip(scenarios, play(scenarios, QUICK), strict=True)]
    again = [one.scenario for one in first if one.verdict in {"differs", "unstable"}]
    replays = [play(again, CAREFUL) for _ in range(REPLAYS)] if again else []
    later = {scenario["id"]: plays for scenario, *plays in zip(again, *replays, strict=True)} if again else {}
    return [
        compared(one.scenario, (*one.plays, *later[one.scenario["id"]])) if one.scenario["id"] in later else one
        for one in first
    ]


def compared(scenario: Data, plays: Sequence[Played]) -> Compared:
    """The verdict on a scenario. The first play was in a hurry: it does not count if all others agree."""
    states = run(read_tenancy(scenario), read_steps(scenario))
    counted = tuple(plays if len(plays) == 1 or not _same(plays[1:]) else plays[1:])
    last = counted[-1]
    states = states[: len(last.observed)]
    steps = tuple(_foreseen(one, like=other) == other for one, other in zip(states, last.observed, strict=True))
    livelock = any(state.livelock for state in states)
    if livelock and not any(played.settled for played in counted):
        verdict: Verdict = "livelock"
    elif not _same(counted):
        verdict = "unstable"
    elif not livelock and last.settled and all(steps):
        verdict = "agrees"
    else:  # Kueue would decide otherwise with another random id.
        verdict = "unstable" if any(played.tie for played in counted) else "differs"
    return Compared(
        scenario,
        verdict,
        steps,
        tuple(_same_preemptions(one, trace) for one, trace in zip(states, last.trace, strict=True)),
        livelock,
        counted,
    )


def _same(plays: Sequence[Played]) -> bool:
    return all(played.same(plays[0]) for played in plays)


def _foreseen(settled: Settled, *, like: Data) -> Data:
    """The simulated state in the form of an observed one, which has flavors if there are several."""
    flavors = {one.name: dict(one.flavors[0]) for one in settled.admitted}
    return {
        "admitted": [workload.name for workload in settled.admitted],
        "pending": [workload.name for workload in settled.pending],
        **({"flavors": flavors} if "flavors" in like else {}),
    }


def _same_preemptions(settled: Settled, trace: Sequence[Sequence[Any]]) -> bool:
    """Whether a trace has the simulated preemptions; their order may depend on milliseconds."""
    simulated = Counter(f"-{one.name} {one.reason} by {one.by}" for one in settled.evicted)
    return simulated == Counter(text for _, text in trace if text.startswith("-"))
