"""The rule engine of the policy packs: reads resources, evaluates rules, implements Pulumi's analyzer protocol.

Each pack links this folder so that it can be published alone: `pulumi policy publish` follows links.
"""

from rule_engine.reading import Unknown, UnknownValueError, UnknownValues, View
from rule_engine.resources import Part, Resource, Subject, kubernetes
from rule_engine.rules import Pack, Settings, read_table, rule, rules_of
from rule_engine.stacks import Among, Stack, located_at
from rule_engine.values import format_number, quantity

__all__ = [
    "Among", "Pack", "Part", "Resource", "Settings", "Stack", "Subject", "Unknown", "UnknownValueError",
    "UnknownValues", "View", "format_number", "kubernetes", "located_at", "quantity", "read_table", "rule",
    "rules_of",
]  # fmt: skip
