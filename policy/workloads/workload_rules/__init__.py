"""Rules for GPU workloads on Kubernetes, for any Pulumi program in any language."""

from typing import Final

from rule_engine import Pack, rules_of
from rule_engine.exemptions import annotated_exemptions
from workload_rules import guards, images, jobs, placement, priorities, quotas, roles, scaling, security, tenancy

PACK: Final = Pack(
    name="gpu-workloads",
    version="0.1.0",
    description="Rules for GPU workloads on Kubernetes.",
    rules=rules_of(placement, jobs, security, tenancy, roles, quotas, priorities, scaling, images, guards),
    exemptions=annotated_exemptions,
)
