"""Simulates a stack's queues: everyone busy, one team alone, or jobs of your own over time.

The simulation of Kueue gets the queues as they will be deployed, without the GPUs that are reserved for Volcano. A
story of jobs can also be played on a cluster: `Player` is what both have in common.
"""

from gpu_tenancy.simulation.scenarios.comparison import Difference, StepResult
from gpu_tenancy.simulation.scenarios.default_story import default_story
from gpu_tenancy.simulation.scenarios.holdings import Held, every_measure, holdings
from gpu_tenancy.simulation.scenarios.jobs import Job, JobStep
from gpu_tenancy.simulation.scenarios.player import Event, Player, SimulatedPlayer, Tell
from gpu_tenancy.simulation.scenarios.reasons import meaning
from gpu_tenancy.simulation.scenarios.scenes import Scene, alone, busy, unmodelled_of
from gpu_tenancy.simulation.scenarios.stage import GaveWay, Moment, Running, Waiting, amount_of, play, play_story
from gpu_tenancy.simulation.scenarios.story import StoryError, read_story, story_of
from gpu_tenancy.simulation.scenarios.story_form import Story, story_schema

__all__ = [
    "Difference",
    "Event",
    "GaveWay",
    "Held",
    "Job",
    "JobStep",
    "Moment",
    "Player",
    "Running",
    "Scene",
    "SimulatedPlayer",
    "StepResult",
    "Story",
    "StoryError",
    "Tell",
    "Waiting",
    "alone",
    "amount_of",
    "busy",
    "default_story",
    "every_measure",
    "holdings",
    "meaning",
    "play",
    "play_story",
    "read_story",
    "story_of",
    "story_schema",
    "unmodelled_of",
]
