"""Simulates a stack's queues: everyone busy, one team alone, or jobs of your own over time.

The simulation of Kueue gets the queues as they will be deployed, without the GPUs that are reserved for Volcano. A
scenario of jobs can also be played on a cluster: `Player` is what both have in common.
"""

from gpu_tenancy.simulation.scenarios.player import (
    Difference,
    Event,
    Player,
    SimulatedPlayer,
    StepResult,
    Tell,
    unheard,
)
from gpu_tenancy.simulation.scenarios.scenario import (
    Scenario,
    ScenarioError,
    read_scenario,
    scenario_of,
    scenario_schema,
)
from gpu_tenancy.simulation.scenarios.scenes import alone, busy, default_scenario, unmodelled_of
from gpu_tenancy.simulation.scenarios.stage import (
    Held,
    Job,
    JobStep,
    Moment,
    PreemptedJob,
    Running,
    Waiting,
    amount_of,
    every_measure,
    holdings,
    meaning,
    play,
    play_scenario,
)

__all__ = [
    "Difference",
    "Event",
    "Held",
    "Job",
    "JobStep",
    "Moment",
    "Player",
    "PreemptedJob",
    "Running",
    "Scenario",
    "ScenarioError",
    "SimulatedPlayer",
    "StepResult",
    "Tell",
    "Waiting",
    "alone",
    "amount_of",
    "busy",
    "default_scenario",
    "every_measure",
    "holdings",
    "meaning",
    "play",
    "play_scenario",
    "read_scenario",
    "scenario_of",
    "scenario_schema",
    "unheard",
    "unmodelled_of",
]
