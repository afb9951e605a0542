"""Rules for GPU workloads on Kubernetes, for any Pulumi program in any language."""

from pathlib import Path
from typing import Final

import yaml

from rule_engine import Pack, rules_of
from rule_engine.exemptions import annotated_exemptions
from workload_rules import (
    access,
    borrowing,
    budgets,
    devices,
    exposure,
    fabric,
    gpus,
    guards,
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
    rules=rules_of(
        gpus,
        devices,
        placement,
        fabric,
        jobs,
        security,
        images,
        tenancy,
        roles,
        access,
        exposure,
        quotas,
        queues,
        borrowing,
        priorities,
        serving,
        budgets,
        operators,
        guards,
    ),
    exemptions=annotated_exemptions,
    stack_fixes=yaml.safe_load(Path(__file__).with_name("stack_fixes.yaml").read_bytes()),
)
