"""Plays recorded jobs, with their arrivals and durations, through the simulation of a stack's queues."""

from gpu_tenancy.simulation.replay.compare import Change, Comparison, compare
from gpu_tenancy.simulation.replay.outcome import FlavorOutcome, Group, Outcome
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
