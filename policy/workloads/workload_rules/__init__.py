"""Rules for GPU workloads on Kubernetes, for any Pulumi program in any language."""

from typing import Final

from rule_engine import Pack
from rule_engine.exemptions import annotated_exemptions
from workload_rules import (
    access,
    borrowing,
    budgets,
    credentials,
    fabric,
    gpus,
    images,
    jobs,
    operators,
    placement,
    priorities,
    queues,
    quotas,
    roles,
    security,
    serving,
    tenancy,
)

PACK: Final = Pack(
    name="gpu-workloads",
    version="0.1.0",
    description="Rules for GPU workloads on Kubernetes.",
    rules=(
        *gpus.RULES,
        *placement.RULES,
        *fabric.RULES,
        *jobs.RULES,
        *security.RULES,
        *images.RULES,
        *credentials.RULES,
        *tenancy.RULES,
        *roles.RULES,
        *access.RULES,
        *quotas.RULES,
        *queues.RULES,
        *borrowing.RULES,
        *priorities.RULES,
        *serving.RULES,
        *budgets.RULES,
        *operators.RULES,
    ),
    exemptions=annotated_exemptions,
)
