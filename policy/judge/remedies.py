"""Remedies: resources mended by rules whose level is `remediate`."""

from copy import deepcopy
from typing import Any

from google.protobuf import json_format, struct_pb2
from pulumi.runtime.proto import analyzer_pb2 as wire
from pulumi_policy import EnforcementLevel

from judge.exemptions import Exemption
from judge.reading import CannotTellError
from judge.resources import read
from judge.rules import AnyRule
from judge.verdicts import Court


def remedied(court: Court, request: wire.AnalyzeRequest) -> wire.RemediateResponse:
    """Mends one resource, rule after rule; each remediation holds what all before it mended.

    A resource that is exempted from a rule is left as it is, and so is one whose exemption cannot be told.
    """
    response = wire.RemediateResponse()
    rules = [rule for rule in court.rules if court.configuration.level(rule) is EnforcementLevel.REMEDIATE]
    if not rules:
        return response
    try:
        props: dict[str, Any] = json_format.MessageToDict(request.properties)
    except ValueError:  # a number that JSON does not have (an infinite one): `Analyze` says what is wrong with it
        return response
    resource = read(request)
    for rule in rules:
        if rule.remedy is None:
            response.not_applicable.add(
                policy_name=rule.name, reason="This rule has no remedy; its level should be mandatory."
            )
            continue
        if isinstance(court.exemption(resource, rule), (Exemption, CannotTellError)):
            response.not_applicable.add(policy_name=rule.name, reason="The resource is exempted from this rule.")
            continue
        tried = deepcopy(props)
        try:
            changed, words = rule.remedy(request.type, tried, court.configuration.of(rule)), ""
        except CannotTellError as error:
            changed, words = False, str(error)
        except Exception as error:  # noqa: BLE001 - no rule may end somebody's deployment
            changed, words = False, f"rule {rule.name} has a mistake ({type(error).__name__}) and mended nothing"
        props = tried if changed else props
        if changed or words:
            response.remediations.append(_remediation(court, rule, props if changed else None, words))
    return response


def _remediation(court: Court, rule: AnyRule, props: dict[str, Any] | None, words: str) -> wire.Remediation:
    found = wire.Remediation(
        policyName=rule.name,
        policyPackName=court.pack.name,
        policyPackVersion=court.pack.version,
        description=rule.says,
        diagnostic=words,
    )
    if props is not None:
        changed = struct_pb2.Struct()
        changed.update(props)
        found.properties.CopyFrom(changed)
    return found
