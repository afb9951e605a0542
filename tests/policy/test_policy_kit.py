"""Shared code of packs: exemptions, levels, settings, remedies."""

import threading
from dataclasses import replace
from datetime import date
from typing import Any, cast

import grpc
import pytest
from google.protobuf.json_format import MessageToDict
from kit_builders import FEW, MANY, MUST, SHOWN, TOO_MANY, PackClient, Sizes, deployment, exempted, pack
from policy_builders import UNKNOWN, Sample, secret, with_field
from pulumi.runtime.proto import analyzer_pb2 as wire

from rule_engine.evaluator import Evaluator
from rule_engine.reading import UnknownValueError
from rule_engine.rules import ConfigError
from rule_engine.server import OUTCOMES, UNCHECKED, Analyzer

# Exemptions.

_INVALID = "is not a valid exemption; set an expiry date and a reason, such as `2027-01-31 waits for the new driver`"


def test_exemption_makes_a_violation_advisory() -> None:
    diagnostics = PackClient().analyze(exempted(MANY, "few-replicas", "2026-12-31 waits for the new chart"))
    assert diagnostics == [
        ("few-replicas", wire.ADVISORY, f"exempted until 2026-12-31 (waits for the new chart): {TOO_MANY}")
    ]


def test_an_exemption_is_valid_until_the_end_of_its_last_day() -> None:
    inputs = exempted(MANY, "few-replicas", "2026-11-21 until today")
    assert [level for _, level, _ in PackClient(today=date(2026, 11, 21)).analyze(inputs)] == [wire.ADVISORY]
    diagnostics = PackClient(today=date(2026, 11, 22)).analyze(inputs)
    assert [(name, level) for name, level, _ in diagnostics] == [
        ("few-replicas", wire.MANDATORY),
        ("exemptions-in-order", wire.MANDATORY),
    ]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("few-replicas", "2026-11-20 waits", "expired on 2026-11-20; fix the resource and remove the exemption"),
        ("few-replicas", "2029-01-01 waits", "2029-01-01 is more than 180 days away; set an earlier date"),
        ("few-replicas", "because I say so", f"'because I say so' {_INVALID}"),
        ("few-replicas", "2026-12-31", f"'2026-12-31' {_INVALID}"),
        ("few-replicas", "2026-02-30 there is no such day", f"'2026-02-30 there is no such day' {_INVALID}"),
        ("less-replicas", "2026-12-31 waits", "unknown rule of this pack; correct the name, or remove the exemption"),
        (
            "exemptions-in-order",
            "2026-12-31 waits",
            "this rule does not allow exemptions; fix the resource and remove the exemption",
        ),
    ],
)
def test_an_invalid_exemption_is_a_violation_and_has_no_effect(name: str, text: str, words: str) -> None:
    assert PackClient().analyze(exempted(MANY, name, text)) == [
        ("few-replicas", wire.MANDATORY, TOO_MANY),
        ("exemptions-in-order", wire.MANDATORY, f"Deployment ml/api, exemption from {name}: {words}"),
    ]


def test_an_exemption_of_as_many_days_as_are_allowed_is_valid() -> None:
    inputs = exempted(MANY, "few-replicas", "2027-05-20 waits for the new chart")
    assert [level for _, level, _ in PackClient(today=date(2026, 11, 21)).analyze(inputs)] == [wire.ADVISORY]


def test_expired_exemption_is_a_violation_on_any_day() -> None:
    inputs = exempted(deployment(), "few-replicas", "2020-01-01 waits for the new chart")
    (finding,) = Evaluator(pack(FEW)).evaluate(inputs.resource())
    assert "expired on 2020-01-01" in finding.message


def test_settings_limit_days_and_rules_of_exemptions() -> None:
    client = PackClient()
    assert not client.configure(exemptions_in_order=(wire.MANDATORY, {"forbidden": ["few-replicas"], "days": 30}))
    diagnostics = client.analyze(exempted(MANY, "few-replicas", "2026-12-01 waits for the new chart"))
    assert diagnostics[0] == ("few-replicas", wire.MANDATORY, TOO_MANY)
    assert diagnostics[1][2].endswith("this rule does not allow exemptions; fix the resource and remove the exemption")
    far = exempted(deployment(), "nothing-shown", "2026-12-31 waits for the new chart")
    assert [words for _, _, words in client.analyze(far)] == [
        "Deployment ml/api, exemption from nothing-shown: 2026-12-31 is more than 30 days away; set an earlier date"
    ]


def test_a_violation_with_an_unknown_exemption_stays_mandatory() -> None:
    diagnostics = PackClient().analyze(with_field(MANY, "metadata.annotations", UNKNOWN))
    assert diagnostics[0] == (
        "few-replicas",
        wire.MANDATORY,
        f"{TOO_MANY} (exemption not evaluated: metadata.annotations is unknown until deployment)",
    )
    assert [(name, level) for name, level, _ in diagnostics[1:]] == [("exemptions-in-order", wire.ADVISORY)]


# Levels and settings.


def test_the_pack_describes_each_rule_with_schema_and_level() -> None:
    info = PackClient().analyzer.GetAnalyzerInfo(cast("Any", None), cast("grpc.ServicerContext", None))
    few = next(policy for policy in cast("list[wire.PolicyInfo]", info.policies) if policy.name == "few-replicas")
    assert (few.enforcementLevel, few.severity, few.policy_type) == (
        wire.MANDATORY,
        wire.POLICY_SEVERITY_HIGH,
        wire.POLICY_TYPE_RESOURCE,
    )
    description = "Replicas that a Deployment may have."
    assert MessageToDict(few.configSchema.properties) == {
        "most": {"default": 3.0, "description": description, "minimum": 1.0, "type": "integer"}
    }


@pytest.mark.parametrize(
    ("level", "found"),
    [
        (wire.ADVISORY, [wire.ADVISORY]),
        (wire.MANDATORY, [wire.MANDATORY]),
        (wire.REMEDIATE, [wire.MANDATORY]),
        (wire.DISABLED, []),
    ],
)
def test_the_configuration_sets_the_level_of_a_rule(level: int, found: list[int]) -> None:
    client = PackClient()
    client.configure(few_replicas=(level, {}))
    assert [level for _, level, _ in client.analyze(MANY)] == found


def test_each_configuration_replaces_the_one_before() -> None:
    client = PackClient()
    assert not client.configure(few_replicas=(wire.MANDATORY, {"most": 5}), all=(wire.MANDATORY, {}))
    assert client.analyze(MANY) == []
    assert not client.configure(nothing_shown=(wire.ADVISORY, {}))
    assert [words for _, _, words in client.analyze(MANY)] == [TOO_MANY]


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("few_replica", {}, "unknown rule 'few-replica' (did you mean 'few-replicas'?)"),
        (
            "other",
            {},
            "unknown rule 'other'; rules of this pack: account-there, exemptions-in-order, few-replicas, nothing-shown",
        ),
        ("few_replicas", {"mots": 4}, "few-replicas.mots: unknown setting; settings of this rule: most"),
        ("nothing_shown", {"mots": 4}, "nothing-shown.mots: unknown setting; settings of this rule: none"),
        ("few_replicas", {"most": 0}, "few-replicas.most: 0.0: input should be greater than or equal to 1"),
    ],
)
def test_invalid_configuration_keeps_the_previous_one(name: str, settings: dict[str, object], words: str) -> None:
    client = PackClient()
    client.configure(**{name: (wire.MANDATORY, settings)})
    assert (client.refusal.code, client.refusal.words) == (grpc.StatusCode.INVALID_ARGUMENT, words)
    assert [message for _, _, message in client.analyze(MANY)] == [TOO_MANY]


@pytest.mark.parametrize(("levels", "settings"), [({"few": MUST}, {}), ({}, {"few": {}})])
def test_configuration_of_an_unknown_rule_is_refused(levels: Any, settings: Any) -> None:
    with pytest.raises(ConfigError, match=r"unknown rule 'few'"):
        Evaluator(pack(SHOWN)).configure(levels, settings)


def test_an_error_lists_at_most_five_rules() -> None:
    rules = [replace(FEW, name=f"rule-{letter}") for letter in "abcde"]
    with pytest.raises(ConfigError, match=r"exemptions-in-order, rule-a, rule-b, rule-c, rule-d$"):
        Evaluator(pack(*rules[:4])).configure({"other": MUST}, {})
    with pytest.raises(ConfigError, match=r"exemptions-in-order, rule-a, rule-b, rule-c, rule-d, …$"):
        Evaluator(pack(*rules)).configure({"other": MUST}, {})


# Types that no rule checks.


@pytest.mark.parametrize(
    ("type_", "is_checked"),
    [
        ("kubernetes:apps/v1:Deployment", True),
        ("kubernetes:apps/v1:DeploymentPatch", True),
        ("kubernetes:apps/v1:DeploymentList", True),
        ("kubernetes:core/v1:List", True),
        ("kubernetes:core/v1:ConfigMap", False),
        ("kubernetes:core/v1:ConfigMapList", False),
        ("aws:s3/bucket:Bucket", False),
    ],
)
def test_the_client_is_told_of_a_type_that_no_rule_checks(type_: str, *, is_checked: bool) -> None:
    client = PackClient()
    assert client.analyze(Sample(type_, {"metadata": {"name": "it"}})) == []
    assert client.refusal.trailing == ({OUTCOMES: ""} if is_checked else {UNCHECKED: "unchecked"})


def test_pack_ends_when_the_engine_cancels() -> None:
    ended = threading.Event()
    context, empty = cast("grpc.ServicerContext", None), cast("Any", None)
    for analyzer in (Analyzer(Evaluator(pack()), ended), PackClient().analyzer):
        assert analyzer.GetAnalyzerInfo(empty, context).supportsConfig
        analyzer.Cancel(empty, context)
    assert ended.is_set()


def test_a_pack_with_two_rules_of_one_name_is_refused() -> None:
    with pytest.raises(ValueError, match="pack test has duplicate rules: few-replicas"):
        pack(FEW, replace(SHOWN, name="few-replicas"))


# Remedies.


def test_a_remedy_keeps_secrets_and_unknown_values() -> None:
    client = PackClient()
    client.configure(few_replicas=(wire.REMEDIATE, {}))
    (remedy,) = client.remediate(deployment(replicas=5, key=secret("hunter2"), later=UNKNOWN)).remediations
    assert (remedy.policyName, remedy.diagnostic) == ("few-replicas", "")
    assert MessageToDict(remedy.properties)["spec"] == {"replicas": 3.0, "key": secret("hunter2"), "later": UNKNOWN}


def test_remedies_need_a_violation_and_the_level_remediate() -> None:
    client = PackClient()
    assert client.remediate(MANY) == wire.RemediateResponse()
    client.configure(few_replicas=(wire.REMEDIATE, {}))
    assert client.remediate(deployment(replicas=2)) == wire.RemediateResponse()


def test_a_remedy_does_not_change_an_exempted_resource() -> None:
    client = PackClient()
    client.configure(few_replicas=(wire.REMEDIATE, {}))
    inputs = exempted(MANY, "few-replicas", "2026-12-31 waits for the new chart")
    (skipped,) = client.remediate(inputs).not_applicable
    assert (skipped.policy_name, skipped.reason) == ("few-replicas", "the resource is exempted from this rule")
    assert not client.remediate(inputs).remediations
    assert [level for _, level, _ in client.analyze(inputs)] == [wire.ADVISORY]
    unknown = with_field(MANY, "metadata.annotations", UNKNOWN)
    assert not client.remediate(unknown).remediations


def test_remedy_that_needs_an_unknown_value_changes_nothing() -> None:
    def needs(*_: object) -> bool:
        raise UnknownValueError(("spec", "replicas"), "is unknown until deployment")

    client = PackClient(replace(FEW, remedy=needs))
    client.configure(few_replicas=(wire.REMEDIATE, {}))
    (remediation,) = client.remediate(MANY).remediations
    assert not remediation.HasField("properties")
    assert remediation.diagnostic == "spec.replicas is unknown until deployment"


def test_failing_or_missing_remedy_changes_nothing() -> None:
    def fails(_: str, props: dict[str, Any], settings: Sizes) -> bool:  # noqa: ARG001 - as remedies are called
        raise KeyError(props.pop("spec")["replicas"])

    client = PackClient(replace(FEW, remedy=fails), replace(SHOWN, level=MUST))
    client.configure(few_replicas=(wire.REMEDIATE, {}), nothing_shown=(wire.REMEDIATE, {}))
    response = client.remediate(MANY)
    assert [(remediation.diagnostic, len(remediation.properties.fields)) for remediation in response.remediations] == [
        ("rule few-replicas: internal error (KeyError); remedy not applied. Report it to the pack owner", 0)
    ]
    assert [skipped.policy_name for skipped in response.not_applicable] == ["nothing-shown"]
