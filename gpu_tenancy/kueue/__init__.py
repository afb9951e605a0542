"""Kueue 0.19 without a cluster: quota arithmetic (`Quotas`) and a simulation of its scheduler (`Simulation`).

It has Kueue's default feature gates; `runner.Clock` lists assumptions about timing, `unmodelled` missing features.
"""

from gpu_tenancy.kueue.api import (
    FAIR,
    BorrowWithinCohort,
    ClusterQueue,
    Cohort,
    FairStrategy,
    FlavorQuotas,
    FlavorResource,
    Fungibility,
    Fungible,
    PodSet,
    Policy,
    Preemption,
    Preference,
    Quota,
    ResourceGroup,
    Step,
    Strategy,
    Tenancy,
    Workload,
    without_cycles,
)
from gpu_tenancy.kueue.quotas import Preemptor, Quotas, by_time, preemptors
from gpu_tenancy.kueue.simulation import Admitted, Pending, Settled, Simulation, run
from gpu_tenancy.kueue.unmodelled import Unmodelled, unmodelled
from gpu_tenancy.kueue.workload_info import Evicted

__all__ = [
    "FAIR", "Admitted", "BorrowWithinCohort", "ClusterQueue", "Cohort", "Evicted", "FairStrategy", "FlavorQuotas",
    "FlavorResource", "Fungibility", "Fungible", "Pending", "PodSet", "Policy", "Preemption", "Preemptor",
    "Preference", "Quota", "Quotas", "ResourceGroup", "Settled", "Simulation", "Step", "Strategy", "Tenancy",
    "Unmodelled", "Workload", "by_time", "preemptors", "run", "unmodelled", "without_cycles",
]  # fmt: skip
