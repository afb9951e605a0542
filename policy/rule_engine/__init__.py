"""The rule engine of the policy packs: reads resources, evaluates rules, implements Pulumi's analyzer protocol.

Each pack links this folder so that it can be published alone: `pulumi policy publish` follows links.
"""

from pulumi_policy import EnforcementLevel, Severity

from rule_engine.quantities import format_number, quantity
from rule_engine.reading import Unknown, UnknownValueError, UnknownValues, View
from rule_engine.resources import Part, Resource, Subject, kubernetes, typed
from rule_engine.rules import Pack, Settings, rule, rules_of
from rule_engine.stacks import Among, Stack, located_at

ADVICE = EnforcementLevel.ADVISORY
MUST = EnforcementLevel.MANDATORY

__all__ = [
    "ADVICE",
    "MUST",
    "Among",
    "EnforcementLevel",
    "Pack",
    "Part",
    "Resource",
    "Settings",
    "Severity",
    "Stack",
    "Subject",
    "Unknown",
    "UnknownValueError",
    "UnknownValues",
    "View",
    "format_number",
    "kubernetes",
    "located_at",
    "quantity",
    "rule",
    "rules_of",
    "typed",
]
