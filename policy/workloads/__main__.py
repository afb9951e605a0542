"""The pack as Pulumi starts it."""

from judge.server import serve
from workload_rules import PACK

serve(PACK)
