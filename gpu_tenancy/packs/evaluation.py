"""Evaluates a stack with packs: configures them, applies remedies, analyzes each resource and the stack."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

from google.protobuf.json_format import MessageToDict
from pulumi.runtime.proto import analyzer_pb2 as wire

from gpu_tenancy.engine.render import Rendered
from gpu_tenancy.packs.configuration import LEVELS, PackChoice, RuleConfig, read_config, reconciled
from gpu_tenancy.packs.findings import Finding, Kind, Outcome, PackResult, RuleState
from gpu_tenancy.packs.process import Client, pack_process
from gpu_tenancy.packs.requests import resource_requests, stack_request

_LEVELS: Final = {number: level for level, number in LEVELS.items()}
_SEVERITIES: Final = {
    wire.PolicySeverity.Value(f"POLICY_SEVERITY_{name.upper()}"): name for name in ("low", "medium", "high", "critical")
}


def evaluate(rendered: Rendered, chosen: Sequence[PackChoice]) -> list[PackResult]:
    """Evaluates a stack with all packs in parallel, each in its own process.

    Raises:
        ConsoleError: a pack does not start or respond, or its configuration is invalid.
    """
    request = stack_request(rendered)
    with ThreadPoolExecutor(max(1, len(chosen))) as threads:
        return list(threads.map(partial(_evaluate_pack, rendered, request), chosen))


def _evaluate_pack(rendered: Rendered, request: wire.AnalyzeStackRequest, chosen: PackChoice) -> PackResult:
    with pack_process(chosen.folder) as client:
        session = Session.of(client, read_config(chosen.config) if chosen.config else {}, str(chosen.config))
        client.open(rendered.project, rendered.stack)
        return session.evaluate(request)


@dataclass(frozen=True, slots=True)
class Session:
    """A configured pack: the connection to its process, its description of itself, its levels and settings."""

    client: Client
    info: wire.AnalyzerInfo
    config: wire.ConfigureAnalyzerRequest

    @classmethod
    def of(cls, client: Client, given: Mapping[str, RuleConfig], where: str = "the configuration") -> "Session":
        """Reads a pack's description, and configures it.

        Raises:
            ConsoleError: the configuration is invalid.
        """
        info = client.info()
        config = reconciled(info, given, where)
        client.configure(config)
        return cls(client, info, config)

    def evaluate(self, stack: wire.AnalyzeStackRequest) -> PackResult:
        """Evaluates each resource, after remedies if rules have that level, and then the stack."""
        findings: list[Finding] = []
        remedied: dict[str, wire.AnalyzeRequest] = {}
        configs = self.config.policyConfig.values()
        remedies = any(config.enforcementLevel == wire.REMEDIATE for config in configs)
        for request in resource_requests(stack):
            resource = request
            if remedies:
                resource = self._remedied(request, findings)
                remedied[request.urn] = resource
            reported = self.client.analyze(resource)
            findings += [self._finding(diagnostic, outcome, request.urn) for diagnostic, outcome in reported]
        remedied_stack = stack
        if remedied:
            remedied_stack = wire.AnalyzeStackRequest()
            remedied_stack.CopyFrom(stack)
            for resource in remedied_stack.resources:
                resource.properties.CopyFrom(remedied[resource.urn].properties)
        reported = self.client.analyze_stack(remedied_stack)
        findings += [self._finding(diagnostic, outcome, "") for diagnostic, outcome in reported]
        states = {
            name: RuleState(_LEVELS[config.enforcementLevel], MessageToDict(config.properties))
            for name, config in sorted(self.config.policyConfig.items())
        }
        return PackResult(self.info.name, self.info.version, states, tuple(findings))

    def _remedied(self, request: wire.AnalyzeRequest, findings: list[Finding]) -> wire.AnalyzeRequest:
        resource = request
        for remedy in self.client.remediate(request):
            if not remedy.diagnostic:
                resource = wire.AnalyzeRequest()
                resource.CopyFrom(request)
                resource.properties.CopyFrom(remedy.properties)
            place = f"{request.type.rpartition(':')[2]} {request.name}"
            findings.append(
                Finding(
                    pack=self.info.name,
                    rule=remedy.policyName,
                    kind="advice" if remedy.diagnostic else "mended",
                    severity=self._severity(remedy.policyName),
                    urn=request.urn,
                    message=f"{place}: {remedy.diagnostic or 'remedy applied'}",
                    outcome=Outcome.BROKEN if remedy.diagnostic else Outcome.REMEDIED,
                )
            )
        return resource

    def _severity(self, rule: str) -> str:
        severity = next((policy.severity for policy in self.info.policies if policy.name == rule), None)
        return "unspecified" if severity is None else _SEVERITIES.get(severity, "unspecified")

    def _finding(self, diagnostic: wire.AnalyzeDiagnostic, outcome: Outcome | None, urn: str) -> Finding:
        kind: Kind = "exempted" if outcome is Outcome.EXEMPTED else "advice"
        if diagnostic.enforcementLevel in {wire.MANDATORY, wire.REMEDIATE}:
            kind = "broken"  # also what remains after its remedy, as in the engine
        return Finding(
            pack=self.info.name,
            rule=diagnostic.policyName,
            kind=kind,
            severity=_SEVERITIES.get(diagnostic.severity) or self._severity(diagnostic.policyName),
            urn=diagnostic.urn or urn,
            message=diagnostic.message.removeprefix(diagnostic.description).strip(),
            outcome=outcome or Outcome.BROKEN,
        )
