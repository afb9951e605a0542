"""A small pack, called as its process is."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Any, cast

import grpc
from policy_builders import TODAY, Sample, with_field
from pulumi.runtime.proto import analyzer_pb2 as wire
from pulumi_policy import EnforcementLevel, Severity
from pydantic import Field

from rule_engine import Pack, Resource, Settings, Stack, Subject, kubernetes
from rule_engine.evaluator import Evaluator
from rule_engine.rules import Rule
from rule_engine.server import OUTCOMES, Analyzer

PREFIX = "exempt.test/"
ADVICE, MUST = EnforcementLevel.ADVISORY, EnforcementLevel.MANDATORY


class Sizes(Settings):
    most: int = Field(3, ge=1, description="Replicas that a Deployment may have.")


DEPLOYMENTS = Subject("deployments", kubernetes("apps:Deployment"), lambda resource: [resource])


def too_many(resource: Resource, settings: Sizes) -> Iterator[str]:
    replicas = resource.props.number("spec", "replicas") or Decimal(1)
    if replicas > settings.most:
        yield f"has {replicas} replicas; write {settings.most} or fewer"


def fewer(_: str, props: dict[str, Any], settings: Sizes) -> bool:
    if props["spec"].get("replicas", 1) <= settings.most:
        return False
    props["spec"]["replicas"] = settings.most
    return True


def shown(resource: Resource, settings: Settings) -> Iterator[str]:  # noqa: ARG001 - as rules are called
    for name, value in resource.props.entries("spec", "shown").items():
        yield f"{name} is {value.text()}"


def has_account(resource: Resource, settings: Settings, stack: Stack) -> Iterator[str]:  # noqa: ARG001 - as above
    wanted = resource.props.text("spec", "account")
    accounts = Subject("accounts", kubernetes("core:ServiceAccount"), lambda each: [each])
    if wanted and not stack.first(accounts, lambda each: each.props.text("metadata", "name") == wanted):
        yield f"names account {wanted}, which is not there"


def rule(name: str, check: Any, settings: type[Any] = Settings, **more: Any) -> Rule[Resource, Any]:
    given: dict[str, Any] = {"severity": Severity.HIGH, "level": MUST, "on": DEPLOYMENTS, **more}
    return Rule(
        name=name, title=f"It keeps {name}.", rationale="", fix="", link="", check=check, settings=settings, **given
    )


def exemptions(resource: Resource) -> dict[str, str]:
    annotations = resource.props.entries("metadata", "annotations")
    return {key.removeprefix(PREFIX): value.text() for key, value in annotations.items() if key.startswith(PREFIX)}


FEW = rule("few-replicas", too_many, Sizes, remedy=fewer)
SHOWN = rule("nothing-shown", shown, level=ADVICE)
ACCOUNT = rule("account-there", has_account, whole=True)


def pack(*rules: Rule[Resource, Any]) -> Pack:
    return Pack("test", "1.0.0", "For tests.", rules or (FEW, SHOWN, ACCOUNT), exemptions)


def deployment(**spec: Any) -> Sample:
    props = {"metadata": {"name": "api", "namespace": "ml"}, "spec": spec}
    return Sample("kubernetes:apps/v1:Deployment", props, "api")


def exempted(given: Sample, name: str, text: str) -> Sample:
    return with_field(given, f"metadata.annotations.'{PREFIX}{name}'", text)


@dataclass
class Refusal:
    """A call's context, with the server's error and its trailing metadata."""

    code: grpc.StatusCode | None = None
    words: str = ""
    trailing: dict[str, str] = field(default_factory=dict[str, str])

    def abort(self, code: grpc.StatusCode, words: str) -> None:
        self.code, self.words = code, words

    def set_trailing_metadata(self, metadata: Iterable[tuple[str, str]]) -> None:
        self.trailing = dict(metadata)


class PackClient:
    def __init__(self, *rules: Rule[Resource, Any], today: date = TODAY) -> None:
        self.analyzer = Analyzer(Evaluator(pack(*rules), today))
        self.refusal = Refusal()
        self._context = cast("grpc.ServicerContext", self.refusal)

    def configure(self, **given: tuple[int, Mapping[str, Any]]) -> str:
        request = wire.ConfigureAnalyzerRequest()
        for name, (level, settings) in given.items():
            config = request.policyConfig[name.replace("_", "-")]
            config.enforcementLevel = level  # pyright: ignore[reportAttributeAccessIssue] - an int is what it takes
            config.properties.update(dict(settings))
        self.analyzer.Configure(request, self._context)
        return self.refusal.words

    @property
    def outcomes(self) -> list[str]:
        return [outcome for outcome in self.refusal.trailing.get(OUTCOMES, "").split(",") if outcome]

    def analyze(self, given: Sample) -> list[tuple[str, int, str]]:
        return self._diagnostics(self.analyzer.Analyze(given.request(), self._context))

    def analyze_stack(self, *given: Sample) -> list[tuple[str, int, str]]:
        request = wire.AnalyzeStackRequest()
        for resource in given:
            sample = resource.request()
            request.resources.add(type=sample.type, urn=sample.urn, name=sample.name, properties=sample.properties)
        return self._diagnostics(self.analyzer.AnalyzeStack(request, self._context))

    def remediate(self, given: Sample) -> wire.RemediateResponse:
        return self.analyzer.Remediate(given.request(), self._context)

    @staticmethod
    def _diagnostics(response: wire.AnalyzeResponse) -> list[tuple[str, int, str]]:
        diagnostics = cast("list[wire.AnalyzeDiagnostic]", response.diagnostics)
        return [
            (diagnostic.policyName, diagnostic.enforcementLevel, diagnostic.message.split("\n", 1)[1])
            for diagnostic in diagnostics
        ]


def remediate(
    pack: Pack, rule: str, sample: Sample, settings: Mapping[str, Any] | None = None
) -> wire.RemediateResponse:
    """A pack's answer about a resource if one of its rules has the level `remediate`."""
    evaluator = Evaluator(pack, TODAY)
    evaluator.configure({rule: EnforcementLevel.REMEDIATE}, {rule: settings or {}})
    return Analyzer(evaluator).Remediate(sample.request(), cast("grpc.ServicerContext", None))


MANY = deployment(replicas=5)
TOO_MANY = "Deployment ml/api: has 5 replicas; write 3 or fewer"
