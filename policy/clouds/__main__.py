"""The pack as Pulumi starts it."""

from cloud_rules import PACK
from rule_engine.server import serve

serve(PACK)
