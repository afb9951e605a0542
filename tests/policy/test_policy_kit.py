"""Shared code of packs: exemptions, levels, settings, remedies, and values that are read of a resource."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any, cast

import grpc
import pytest
from google.protobuf.json_format import MessageToDict
from kit_builders import FEW, MANY, MUST, SHOWN, TOO_MANY, PackClient, Sizes, deployment, exempted, pack, rule
from policy_builders import UNKNOWN, Sample, doubt, secret, with_field
from pulumi.runtime.proto import analyzer_pb2 as wire
from typing_extensions import override

from rule_engine import Pack, Part, Resource, Settings, Subject, kubernetes, quantity, resources
from rule_engine.evaluator import Evaluator
from rule_engine.reading import SIGNATURE, UnknownValueError, View
from rule_engine.resources import read
from rule_engine.rules import ConfigError
from rule_engine.server import OUTCOMES, UNCHECKED, Analyzer
from rule_engine.values import Secrets

# Exemptions.

_INVALID = "is not a valid exemption; set an expiry date and a reason, such as `2027-01-31 waits for the new driver`"


def test_exemption_makes_a_violation_advisory() -> None:
    diagnostics = PackClient().analyze(exempted(MANY, "few-replicas", "2026-12-31 waits for the new chart"))
    assert diagnostics == [
        ("few-replicas", wire.ADVISORY, f"exempted until 2026-12-31 (waits for the new chart): {TOO_MANY}")
    ]


def test_an_exemption_is_valid_until_the_end_of_its_last_day() -> None:
    inputs = exempted(MANY, "few-replicas", "2026-11-21 until today")
    for valid in (inputs, exempted(MANY, "few-replicas", "2027-05-20 for as many days as are allowed")):
        assert [level for _, level, _ in PackClient(today=date(2026, 11, 21)).analyze(valid)] == [wire.ADVISORY]
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
    for replicas in (2, float("inf")):
        assert client.remediate(deployment(replicas=replicas)) == wire.RemediateResponse()


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


# Secrets.


def _output(value: object, **marks: bool) -> dict[str, object]:
    return {SIGNATURE: "d0e6a833031e9bbcd3f4e8bde6ca49a4", "value": value, **marks}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        pytest.param(secret("hunter2"), "a is [secret]", id="a text"),
        pytest.param(secret(8), "a is [secret]", id="a number"),
        pytest.param(8, "a is 8", id="no secret"),
        pytest.param(_output("hunter2", secret=True), "a is [secret]", id="a secret output"),
        pytest.param(_output("hunter2", secret=False), "a is hunter2", id="an output"),
        pytest.param(_output("hunter2"), "a is hunter2", id="an output without a mark"),
        pytest.param(secret(_output("hunter2")), "a is [secret]", id="an output in a secret"),
    ],
)
def test_no_message_shows_a_secret(value: object, words: str) -> None:
    assert PackClient().analyze(deployment(shown={"a": value})) == [
        ("nothing-shown", wire.ADVISORY, f"Deployment ml/api: {words}")
    ]


def test_a_secret_is_hidden_in_other_properties_and_in_pieces() -> None:
    inputs = deployment(
        shown={"host": "db.example.com:80", "tag": "18"}, a=secret("https://db.example.com/x"), b=secret(8)
    )
    assert [words for _, _, words in PackClient().analyze(inputs)] == [
        "Deployment ml/api: host is [secret]:80",
        "Deployment ml/api: tag is 18",
    ]


@pytest.mark.parametrize(
    ("kept", "text", "shown"),
    [
        ("abcd", "xabcdx", "x[secret]x"),
        ("abc", "xabcx abc", "xabcx [secret]"),
        ("quay.io/team:abc", "team abc quay.io", "[secret] abc [secret]"),
        ("quay.io/team:abcd", "abcd", "[secret]"),
        (["abcd", "abcdef"], "abcdef", "[secret]"),
        ("word " * 200, "word", "[secret]"),
        (f"{'word ' * 200}a", "word", "word"),
        (["", " "], "a b", "a b"),
        ([" ", "abcd"], "a  : b", "a  : b"),
        (8, "8 GPUs", "[secret] GPUs"),
        (True, "1 GPU", "1 GPU"),
    ],
)
def test_hides_secrets_and_their_pieces_but_no_common_words(kept: object, text: str, shown: str) -> None:
    secrets = Secrets()
    secrets.keep(kept)
    assert secrets.hide(text) == shown


def test_hides_secrets_of_other_resources() -> None:
    other = Sample("kubernetes:core/v1:ServiceAccount", {"metadata": {"name": secret("runner-7f")}}, "account")
    client = PackClient().analyze_stack(deployment(account="runner-7f-a"), other)
    assert client == [
        ("account-there", wire.MANDATORY, "Deployment ml/api: names account [secret]-a, which is not there")
    ]


def test_hides_data_of_kubernetes_secrets() -> None:
    kept_value = Sample(
        "kubernetes:core/v1:Secret", {"metadata": {"name": "key"}, "stringData": {"key": "hunter2"}}
    ).resource()
    assert kept_value.secrets.hide("hunter2 of key") == "hunter2 of key"
    assert kept_value.props.text("stringData", "key") == "hunter2"
    assert kept_value.secrets.hide("hunter2 of key") == "[secret] of key"


# What is read, and what cannot be.


def test_a_resource_whose_type_no_rule_checks_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> dict[str, Any]:
        raise AssertionError

    monkeypatch.setattr(resources, "read_struct", read)
    foreign = Sample("aws:s3/bucket:Bucket", {"bucket": "data"})
    patch = Sample("kubernetes:apps/v1:StatefulSetPatch", {"spec": {"replicas": 9}})
    assert (
        PackClient().analyze(foreign) == PackClient().analyze(patch) == PackClient().analyze_stack(foreign, patch) == []
    )


def test_a_rule_can_look_up_resources_that_no_rule_checks() -> None:
    account = Sample("kubernetes:core/v1:ServiceAccount", {"metadata": {"name": "runner"}}, "account")
    inputs = deployment(account="runner")
    assert PackClient().analyze_stack(inputs, account) == []
    assert [words for _, _, words in PackClient().analyze_stack(inputs)] == [
        "Deployment ml/api: names account runner, which is not there"
    ]


def test_a_violation_before_an_unknown_value_is_reported() -> None:
    client = PackClient(replace(SHOWN, level=MUST))
    diagnostics = client.analyze(deployment(shown={"a": "x", "b": UNKNOWN, "c": "z"}))
    assert [(level, message) for _, level, message in diagnostics] == [
        (wire.MANDATORY, "Deployment ml/api: a is x"),
        (wire.ADVISORY, doubt("Deployment ml/api", "spec.shown.b")),
    ]
    assert client.outcomes == ["broken", "unknown"]


def fails(resource: Resource, settings: Settings) -> Iterator[str]:  # noqa: ARG001 - as rules are called
    raise ZeroDivisionError(resource.props.text("spec", "key"))


def wrong(*_: object) -> list[str]:
    return ["is wrong; fix it"]


def divided(*_: object) -> list[str]:
    return [str(1 / 0)]


_FAILED = (
    "Deployment ml/api: rule divides: internal error (ZeroDivisionError); not evaluated. Report it to the pack owner,"
    " or exempt the resource from the rule"
)


@pytest.mark.parametrize(
    ("level", "enforced"),
    [(level, level) for level in (wire.ADVISORY, wire.MANDATORY)] + [(wire.REMEDIATE, wire.MANDATORY)],
)
def test_internal_error_has_its_rules_level_and_stops_no_other(level: int, enforced: int) -> None:
    client = PackClient(rule("divides", fails), FEW)
    client.configure(divides=(level, {}))
    assert client.analyze(deployment(replicas=5, key="hunter2")) == [
        ("divides", enforced, _FAILED),
        ("few-replicas", wire.MANDATORY, TOO_MANY),
    ]
    assert client.outcomes == ["error", "broken"]


def test_exemption_covers_internal_errors() -> None:
    inputs = exempted(deployment(), "divides", "2026-12-31 waits for the fix of the rule")
    client = PackClient(rule("divides", fails))
    assert [(level, words) for _, level, words in client.analyze(inputs)] == [
        (wire.ADVISORY, f"exempted until 2026-12-31 (waits for the fix of the rule): {_FAILED}")
    ]


def test_internal_error_of_exemptions_is_enforced() -> None:
    def unreadable(resource: Resource) -> dict[str, str]:
        raise RecursionError(resource.name)

    evaluator = Evaluator(Pack("test", "1", "Exemptions fail.", (FEW,), unreadable))
    assert [(finding.rule.name, finding.outcome, finding.level) for finding in evaluator.evaluate(MANY.resource())] == [
        ("few-replicas", "broken", MUST),
        ("exemptions-in-order", "error", MUST),
    ]


@pytest.mark.parametrize(
    ("error", "check", "message"),
    [
        (UnknownValueError(("name",), "is unknown until deployment"), wrong, "Deployment ml/api: is wrong; fix it"),
        (KeyError("name"), divided, _FAILED),
    ],
    ids=["unknown", "broken"],
)
def test_violation_of_an_unnamed_part_is_its_resources(error: Exception, check: Any, message: str) -> None:
    class Nameless(Part):
        @property
        @override
        def place(self) -> str:
            raise error

    def nameless(resource: Resource) -> list[Nameless]:
        return [Nameless(resource, resource.props)]

    parts = Subject("nameless parts", kubernetes("apps:Deployment"), nameless)
    client = PackClient(rule("divides", check, on=parts))
    assert client.analyze(deployment()) == [("divides", wire.MANDATORY, message)]


# Sizes and nesting.


def nested(levels: int, innermost: dict[str, Any]) -> wire.AnalyzeRequest:
    """A Deployment with nested maps, as the protocol sends it."""
    request = deployment(**innermost).request()
    inner: Any = request.properties.get_or_create_struct("spec")
    for _ in range(levels):
        inner = inner.get_or_create_struct("a")
    inner.update({"innermost": "x"})
    return request


@pytest.mark.parametrize("levels", [50, 250, 3000])
def test_a_violation_beside_a_deeply_nested_value_is_reported(levels: int) -> None:
    (finding,) = Evaluator(pack(FEW)).evaluate(read(nested(levels, {"replicas": 5})))
    assert (finding.message, finding.level) == (TOO_MANY, MUST)


def test_deeply_nested_secrets_are_hidden() -> None:
    value: Any = "hunter2"
    for _ in range(5000):
        value = [value]
    secrets = Secrets()
    secrets.keep(value)
    assert secrets.hide("hunter2 is the key") == "[secret] is the key"


def test_deeply_nested_values_do_not_prevent_remedies() -> None:
    client = PackClient()
    client.configure(few_replicas=(wire.REMEDIATE, {}))
    response = client.analyzer.Remediate(nested(3000, {"replicas": 5}), cast("Any", None))
    assert response == wire.RemediateResponse()


def test_a_message_about_a_value_of_megabytes_is_truncated() -> None:
    ((_, _, message),) = PackClient().analyze(deployment(shown={"a": "x" * 3_000_000}))
    assert message == f"{'Deployment ml/api: a is ':x<2000}…"
    ((_, _, longest),) = PackClient().analyze(deployment(shown={"a": "x" * 1976}))
    assert longest == f"{'Deployment ml/api: a is ':x<2000}"


def test_a_secret_at_the_end_of_a_truncated_message_is_hidden() -> None:
    inputs = deployment(shown={"a": "x" * 1970 + "hunter2hunter2"}, key=secret("hunter2hunter2"))
    ((_, _, message),) = PackClient().analyze(inputs)
    assert message == f"Deployment ml/api: a is {'x' * 1970}[secre…"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        pytest.param(UNKNOWN, "is unknown until deployment", id="unknown"),
        pytest.param(secret(UNKNOWN), "is unknown until deployment", id="secret and unknown"),
        pytest.param(
            {SIGNATURE: "c44067f5952c0a294b673a41bacd8c17", "text": "3"},
            "is a file, an archive or a resource reference, which policies cannot read",
            id="a file",
        ),
        pytest.param("many", "is not a number", id="a word"),
        pytest.param(True, "is not a number", id="a flag"),
        pytest.param([3], "is not a number", id="a list"),
        pytest.param("1e999999999", "is not a number", id="a number without end"),
        pytest.param("9" * 5000, "is not a number", id="a number of thousands of digits"),
        pytest.param(float("inf"), "is not a number", id="infinite"),
        pytest.param(1e300, "is not a number", id="as large as a number gets"),
    ],
)
def test_a_value_that_cannot_be_read_is_reported_with_its_path(value: object, why: str) -> None:
    expected = doubt("Deployment ml/api", "spec.replicas", why)
    assert PackClient().analyze(deployment(replicas=value)) == [("few-replicas", wire.ADVISORY, expected)]


@pytest.mark.parametrize("number", [8, 1_000_001, 2_147_483_647, 0.5, -3])
def test_a_number_is_read_exactly(number: float) -> None:
    for value in (number, float(number)):
        view = View({"value": value})
        assert view.number("value") == Decimal(str(number))
        assert view.text("value") == str(number)


def test_a_value_of_another_type_is_reported_with_its_path() -> None:
    with pytest.raises(UnknownValueError, match=r"^spec\.template is not a map$"):
        View({"spec": {"template": "none"}}).has("spec", "template", "spec")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("500m", "0.5"),
        ("2Ti", "2199023255552"),
        ("1e3", "1000"),
        ("1e0003", "1000"),
        ("8", "8"),
        ("8.", "8"),
        (".5", "0.5"),
        pytest.param("9" * 64, "9" * 64, id="64 digits"),
        pytest.param("9" * 60 + "." + "9" * 5, None, id="65 digits"),
        ("8E", "8e18"),
        ("8E2", "800"),
        pytest.param("0" * 1000 + "8." + "0" * 1000, "8", id="8 between zeros"),
        *((f"8{unit}", f"8e{3 * power}") for power, unit in enumerate("kMGTPE", 1)),
        *((f"8{unit}i", str(8 * 1024**power)) for power, unit in enumerate("KMGTPE", 1)),
        ("8GB", None),
        (".", None),
        ("m", None),
        ("٨", None),
        ("", None),
    ],
)
def test_quantities_are_read_as_kubernetes_reads_them(text: str, number: str | None) -> None:
    assert quantity(text) == (None if number is None else Decimal(number))
