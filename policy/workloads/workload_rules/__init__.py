"""Rules for GPU workloads on Kubernetes, for any Pulumi program in any language."""

from typing import Final

from rule_engine import Pack, rules_of
from rule_engine.exemptions import annotated_exemptions
from workload_rules import gpus, images, jobs, placement, priorities, queues, quotas, roles, scaling, security, tenancy

PACK: Final = Pack(
    name="gpu-workloads",
    version="0.1.0",
    description="Rules for GPU workloads on Kubernetes.",
    rules=rules_of(gpus, placement, jobs, security, tenancy, roles, quotas, queues, priorities, scaling, images),
    exemptions=annotated_exemptions,
)
