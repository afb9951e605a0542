"""Rules for clusters and node pools on AWS, GCP and Azure, for any Pulumi program in any language."""

from typing import Final

from cloud_rules import coverage, pool_rules
from cloud_rules.tags import exemptions
from rule_engine import Pack, rules_of

PACK: Final = Pack(
    name="gpu-clouds",
    version="0.1.0",
    description="Rules for clusters and GPU node pools on AWS, GCP and Azure.",
    rules=rules_of(coverage, pool_rules),
    exemptions=exemptions,
)
