"""Simulates a stack's queues: everyone busy, one team alone, or workloads of your own over time.

The simulation of Kueue gets the queues as they will be deployed, without the GPUs that are reserved for Volcano.
"""

from gpu_tenancy.model.whatif.holdings import Held, every_measure, holdings
from gpu_tenancy.model.whatif.reasons import meaning
from gpu_tenancy.model.whatif.scenes import Scene, alone, busy, unmodelled_of
from gpu_tenancy.model.whatif.stage import GaveWay, Moment, Running, Waiting, amount_of, play
from gpu_tenancy.model.whatif.story import Story, StoryError, read_story

__all__ = [
    "GaveWay",
    "Held",
    "Moment",
    "Running",
    "Scene",
    "Story",
    "StoryError",
    "Waiting",
    "alone",
    "amount_of",
    "busy",
    "every_measure",
    "holdings",
    "meaning",
    "play",
    "read_story",
    "unmodelled_of",
]
