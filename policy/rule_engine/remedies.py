"""Remedies: resources fixed by rules with the level `remediate`, in the protocol's JSON form of properties."""

from copy import deepcopy
from typing import Any, cast

from google.protobuf import json_format, struct_pb2
from pulumi.runtime.proto import analyzer_pb2 as wire
from pulumi_policy import EnforcementLevel

from rule_engine.evaluator import Evaluator
from rule_engine.exemptions import Exemption
from rule_engine.reading import SIGNATURE, UnknownValueError
from rule_engine.reads import Path
from rule_engine.resources import Resource, read
from rule_engine.rules import AnyRule


def apply_remedies(evaluator: Evaluator, request: wire.AnalyzeRequest) -> wire.RemediateResponse:
    """Applies the remedies to one resource, rule after rule; each remediation includes the changes before it.

    A resource that is exempted from a rule is not changed, nor is one whose exemption is unknown.
    """
    response = wire.RemediateResponse()
    rules = [rule for rule in evaluator.rules if evaluator.configuration.level(rule) is EnforcementLevel.REMEDIATE]
    if not rules:
        return response
    try:
        props: dict[str, Any] = json_format.MessageToDict(request.properties)
    except (ValueError, RecursionError):  # JSON cannot represent it (infinity, deep nesting): `Analyze` reports it
        return response
    resource = read(request)
    for rule in rules:
        if rule.remedy is None:
            response.not_applicable.add(
                policy_name=rule.name, reason="this rule has no remedy; set its level to mandatory"
            )
            continue
        if isinstance(evaluator.exemption(resource, rule), (Exemption, UnknownValueError)):
            response.not_applicable.add(policy_name=rule.name, reason="the resource is exempted from this rule")
            continue
        try:
            candidate = deepcopy(props)
            changed, diagnostic = rule.remedy(request.type, candidate, evaluator.configuration.of(rule)), ""
        except UnknownValueError as error:
            changed, diagnostic = False, str(error)
        except Exception as error:  # noqa: BLE001 - a failing rule must not stop a deployment
            changed, diagnostic = (
                False,
                (
                    f"rule {rule.name}: internal error ({type(error).__name__}); remedy not applied. Report it to the"
                    " pack owner"
                ),
            )
        else:
            props = candidate if changed else props
        if changed or diagnostic:
            response.remediations.append(_remediation(evaluator, rule, props if changed else None, diagnostic))
    return response


def _remediation(
    evaluator: Evaluator, rule: AnyRule, props: dict[str, Any] | None, diagnostic: str
) -> wire.Remediation:
    remediation = wire.Remediation(
        policyName=rule.name,
        policyPackName=evaluator.pack.name,
        policyPackVersion=evaluator.pack.version,
        description=rule.title,
        diagnostic=diagnostic,
    )
    if props is not None:
        changed = struct_pb2.Struct()
        changed.update(props)
        remediation.properties.CopyFrom(changed)
    return remediation


def resource_of(type_: str, props: dict[str, Any]) -> Resource:
    """A resource with these properties, for a rule to check."""
    struct = struct_pb2.Struct()
    struct.update(props)
    return read(wire.AnalyzeRequest(type=type_, properties=struct))


def value_at(props: dict[str, Any], path: Path) -> Any:
    """The value at a path, to be changed in place; None if there is none.

    Wrappers of secrets and outputs are skipped, and stay around the changed value.
    """
    value: Any = _unwrapped(props)
    for key in path:
        value = _unwrapped(_child(value, key))
        if value is None:
            return None
    return value


def _child(value: Any, key: str) -> Any:
    if isinstance(value, list):
        return cast("list[Any]", value)[int(key)]
    return value.get(key)


def _unwrapped(value: Any) -> Any:
    inner = value
    while _is_wrapped(inner):
        inner = inner["value"]
    return inner


def _is_wrapped(value: object) -> bool:
    return isinstance(value, dict) and SIGNATURE in value and "value" in value
