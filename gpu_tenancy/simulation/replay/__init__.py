"""Plays recorded jobs, with their arrivals and durations, through the simulation of a stack's queues."""

from gpu_tenancy.simulation.replay.outcome import Change, Comparison, FlavorOutcome, Group, Outcome, compare
from gpu_tenancy.simulation.replay.play import replay
from gpu_tenancy.simulation.replay.records import JobRecord, Part, Run, Trace, TraceError

__all__ = [
    "Change",
    "Comparison",
    "FlavorOutcome",
    "Group",
    "JobRecord",
    "Outcome",
    "Part",
    "Run",
    "Trace",
    "TraceError",
    "compare",
    "replay",
]
