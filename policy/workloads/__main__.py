"""The pack as Pulumi starts it."""

from rule_engine.server import serve
from workload_rules import PACK

serve(PACK)
