"""A rule of the guards, and the spec of its ValidatingAdmissionPolicy."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpu_tenancy.model.plan.guards import GuardsPlan

from .expressions import literal
from .kinds import Kind

CHANGES: Final = ("CREATE", "UPDATE")
ALL: Final = (*CHANGES, "DELETE")
_OPERATION: Final = "request.operation == 'CREATE' ? 'create' : 'update'"
EVERYWHERE: Final = (
    f"authorizer.group(request.resource.group).resource(request.resource.resource).check({_OPERATION}).allowed()"
)
"""Whether the user may do the same in all namespaces, as controllers, operators and administrators may, but no member
of a team."""


@dataclass(frozen=True, slots=True)
class Resources:
    """Resources of an API group, in all versions, and the operations that a rule evaluates."""

    group: str
    names: tuple[str, ...]
    operations: tuple[str, ...] = CHANGES


@dataclass(frozen=True, slots=True)
class Rule:
    """The content of one ValidatingAdmissionPolicy.

    Attributes:
        name: name of the policy, without the prefix `gpu-tenancy-`.
        resources: what it evaluates.
        conditions: CEL by name; the rule applies if all are true.
        variables: CEL by name; each can use those before it.
        faults: names of the variables that are lists of messages, one per violation. If all are empty, the request is
            accepted.
        only_if: CEL; if false, no fault counts.
        in_namespaces: whether it applies in the teams' namespaces; to the Namespaces themselves otherwise.
        always_denies: whether it denies whatever the action of the guards.
    """

    name: str
    resources: tuple[Resources, ...]
    conditions: Mapping[str, str]
    variables: Mapping[str, str]
    faults: tuple[str, ...]
    only_if: str = "true"
    in_namespaces: bool = True
    always_denies: bool = False

    @property
    def spec(self) -> dict[str, Any]:
        """The spec of the policy."""
        return {
            "failure_policy": "Fail",
            "match_constraints": {
                "resource_rules": [
                    {
                        "api_groups": [each.group],
                        "api_versions": ["*"],
                        "operations": list(each.operations),
                        "resources": list(each.names),
                        "scope": "Namespaced" if self.in_namespaces else "Cluster",
                    }
                    for each in self.resources
                ]
            },
            "match_conditions": [{"name": name, "expression": text} for name, text in self.conditions.items()],
            "variables": [{"name": name, "expression": text} for name, text in self.variables.items()],
            "validations": [
                {
                    "expression": f"!({self.only_if}) || size(variables.{fault}) == 0",
                    "message_expression": f"string(variables.{fault}[0])",
                    "message": f"violates the rule gpu-tenancy-{self.name}",
                    "reason": "Forbidden",
                }
                for fault in self.faults
            ],
        }


def resources_of(kinds: Iterable[Kind], operations: tuple[str, ...] = CHANGES) -> tuple[Resources, ...]:
    """The resources of some kinds."""
    groups: dict[str, list[str]] = {}
    for kind in kinds:
        groups.setdefault(kind.group, []).append(kind.resource)
    return tuple(Resources(group, tuple(plurals), operations) for group, plurals in groups.items())


def exempt(guards: GuardsPlan, operators: tuple[str, ...]) -> dict[str, str]:
    """Conditions that exclude the requests of exempt accounts and of operators."""
    return {"not-exempt": f"!{requested_by(guards.exempt)}", "not-an-operator": f"!{requested_by(operators)}"}


def requested_by(accounts: tuple[str, ...]) -> str:
    """Whether the request is from one of some users or groups."""
    names = literal(accounts)
    return f"(request.userInfo.username in {names} || request.userInfo.?groups.orValue([]).exists(g, g in {names}))"
