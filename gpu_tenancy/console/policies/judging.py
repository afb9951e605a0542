"""A stack put to a pack's process: configured, mended where that is its level, judged, and judged as a whole."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from pulumi.runtime.proto import analyzer_pb2 as wire

from gpu_tenancy.console.offline.render import Rendered
from gpu_tenancy.console.policies.asking import Questions, questions
from gpu_tenancy.console.policies.configuration import LEVELS, RuleConfig, read_config, reconciled
from gpu_tenancy.console.policies.findings import Finding, Judged, Kind
from gpu_tenancy.console.policies.process import Client, pack_process

_LEVELS: Final = {number: level for level, number in LEVELS.items()}
_SEVERITIES: Final = {
    wire.POLICY_SEVERITY_LOW: "low",
    wire.POLICY_SEVERITY_MEDIUM: "medium",
    wire.POLICY_SEVERITY_HIGH: "high",
    wire.POLICY_SEVERITY_CRITICAL: "critical",
}
_EXEMPTED: Final = "exempted until "
"""How our own packs begin the message of an exempted resource; the protocol has no word for one."""


@dataclass(frozen=True, slots=True)
class PackChoice:
    """A pack by its folder, and its configuration, if any."""

    folder: Path
    config: Path | None = None


def judge(rendered: Rendered, chosen: Sequence[PackChoice]) -> list[Judged]:
    """What packs say of a stack, all asked at once, each in a process of its own.

    Raises:
        ConsoleError: a pack does not start or answer, or its configuration is wrong.
    """
    asked = questions(rendered)
    with ThreadPoolExecutor(max(1, len(chosen))) as threads:
        return list(threads.map(partial(_judged, rendered, asked), chosen))


def _judged(rendered: Rendered, asked: Questions, chosen: PackChoice) -> Judged:
    with pack_process(chosen.folder) as client:
        session = Session.of(client, read_config(chosen.config) if chosen.config else {}, str(chosen.config))
        client.open(rendered.project, rendered.stack)
        return session.judge(asked)


@dataclass(frozen=True, slots=True)
class Session:
    """A pack that is configured and can be asked, again and again.

    Attributes:
        info: what the pack says of itself.
        config: the levels and settings that it has.
    """

    client: Client
    info: wire.AnalyzerInfo
    config: wire.ConfigureAnalyzerRequest

    @classmethod
    def of(cls, client: Client, given: Mapping[str, RuleConfig], where: str = "the configuration") -> "Session":
        """Asks a pack what it is, and configures it.

        Raises:
            ConsoleError: the configuration is wrong.
        """
        info = client.info()
        config = reconciled(info, given, where)
        client.configure(config)
        return cls(client, info, config)

    def judge(self, asked: Questions) -> Judged:
        """What the pack says of each resource, mended before where rules do that, and of all together."""
        findings: list[Finding] = []
        mended: dict[str, wire.AnalyzeRequest] = {}
        remedies = any(each.enforcementLevel == wire.REMEDIATE for each in self.config.policyConfig.values())
        for request in asked.each:
            resource = request
            if remedies:
                resource = self._remedied(request, findings)
                mended[request.urn] = resource
            findings += [self._finding(each, request.urn) for each in self.client.analyze(resource)]
        stack = asked.stack
        if mended:
            stack = wire.AnalyzeStackRequest()
            stack.CopyFrom(asked.stack)
            for each in stack.resources:
                each.properties.CopyFrom(mended[each.urn].properties)
        findings += [self._finding(each, "") for each in self.client.analyze_stack(stack)]
        on = sum(each.enforcementLevel != wire.DISABLED for each in self.config.policyConfig.values())
        return Judged(self.info.name, self.info.version, on, tuple(findings))

    def _remedied(self, request: wire.AnalyzeRequest, findings: list[Finding]) -> wire.AnalyzeRequest:
        """The resource as a pack mends it; with a word about each remedy."""
        found = request
        for each in self.client.remediate(request):
            kind: Kind = "advice" if each.diagnostic else "mended"
            if not each.diagnostic:
                found = wire.AnalyzeRequest()
                found.CopyFrom(request)
                found.properties.CopyFrom(each.properties)
            message = f"{request.type.rpartition(':')[2]} {request.name}: {each.diagnostic or 'its remedy was applied'}"
            rule = self._severity(each.policyName)
            findings.append(
                Finding(
                    self.info.name, each.policyName, kind, each.description, rule, "remediate", request.urn, message
                )
            )
        return found

    def _severity(self, rule: str) -> str:
        found = next((each.severity for each in self.info.policies if each.name == rule), None)
        return "unspecified" if found is None else _SEVERITIES.get(found, "unspecified")

    def _finding(self, said: wire.AnalyzeDiagnostic, urn: str) -> Finding:
        message = said.message.removeprefix(said.description).strip()
        severity = _SEVERITIES.get(said.severity) or self._severity(said.policyName)
        return Finding(
            self.info.name,
            said.policyName,
            _kind(said.enforcementLevel, message),
            said.description,
            severity,
            _LEVELS[said.enforcementLevel],
            said.urn or urn,
            message,
        )


def _kind(level: int, message: str) -> Kind:
    """The engine takes what is still broken after its remedy for mandatory."""
    if level in {wire.MANDATORY, wire.REMEDIATE}:
        return "broken"
    return "exempted" if message.startswith(_EXEMPTED) else "advice"
