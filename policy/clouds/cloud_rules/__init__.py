"""Rules for clusters and node pools on AWS, GCP and Azure, for any Pulumi program in any language."""

from pathlib import Path
from typing import Final

import yaml

from cloud_rules import access, buying, coverage, pool_rules
from cloud_rules.coverage import not_evaluated
from cloud_rules.tags import exemptions
from rule_engine import Pack, rules_of

__all__ = ["PACK", "not_evaluated"]

PACK: Final = Pack(
    name="gpu-clouds",
    version="0.1.0",
    description="Rules for clusters and GPU node pools on AWS, GCP and Azure.",
    rules=rules_of(coverage, pool_rules, buying, access),
    exemptions=exemptions,
    stack_fixes=yaml.safe_load(Path(__file__).with_name("stack_fixes.yaml").read_bytes()),
)
