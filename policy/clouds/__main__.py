"""The pack as Pulumi starts it."""

from cloud_rules import PACK
from judge.server import serve

serve(PACK)
