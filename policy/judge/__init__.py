"""The rule engine of the policy packs: reads resources, evaluates rules, implements Pulumi's analyzer protocol.

Each pack links this folder so that it can be published alone: `pulumi policy publish` follows links.
"""

from pulumi_policy import EnforcementLevel, Severity

from judge.quantities import quantity, shown
from judge.reading import CannotTellError, Unknown, View
from judge.resources import Resource, Subject, kubernetes, typed
from judge.rules import AnyRule, Pack, Rule, Settings
from judge.stacks import Stack, elsewhere

ADVICE = EnforcementLevel.ADVISORY
MUST = EnforcementLevel.MANDATORY

__all__ = [
    "ADVICE",
    "MUST",
    "AnyRule",
    "CannotTellError",
    "EnforcementLevel",
    "Pack",
    "Resource",
    "Rule",
    "Settings",
    "Severity",
    "Stack",
    "Subject",
    "Unknown",
    "View",
    "elsewhere",
    "kubernetes",
    "quantity",
    "shown",
    "typed",
]
