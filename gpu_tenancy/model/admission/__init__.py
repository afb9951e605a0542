"""What Kueue would do: who is admitted, who waits and why, and who was evicted by whom.

A simulation of the admission of Kueue 0.19 with its default feature gates, on plain data, without a cluster.
`model.admission.clock` says what it assumes where the real one depends on timing, and `model.admission.unmodelled`
what it leaves out.
"""

from gpu_tenancy.model.admission.simulation import Admitted, Evicted, Pending, Settled, Simulation, run, settle
from gpu_tenancy.model.admission.spec import (
    FAIR,
    BorrowWithinCohort,
    ClusterQueue,
    Cohort,
    FairStrategy,
    FlavorQuotas,
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
)
from gpu_tenancy.model.admission.unmodelled import Unmodelled, unmodelled

__all__ = [
    "FAIR",
    "Admitted",
    "BorrowWithinCohort",
    "ClusterQueue",
    "Cohort",
    "Evicted",
    "FairStrategy",
    "FlavorQuotas",
    "Fungibility",
    "Fungible",
    "Pending",
    "PodSet",
    "Policy",
    "Preemption",
    "Preference",
    "Quota",
    "ResourceGroup",
    "Settled",
    "Simulation",
    "Step",
    "Strategy",
    "Tenancy",
    "Unmodelled",
    "Workload",
    "run",
    "settle",
    "unmodelled",
]
