"""Evaluates a stack with packs as Pulumi's engine does: configures them, applies remedies, sends them all resources."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from graphlib import CycleError, TopologicalSorter
from typing import Final

from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Struct
from pulumi.runtime.proto import analyzer_pb2 as wire

from gpu_tenancy.base.json import Json, Path
from gpu_tenancy.engine.recording import SECRET, SIGNATURE, STACK_TYPE, Registration
from gpu_tenancy.engine.render import Rendered
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.packs.configuration import LEVELS, PackChoice, RuleConfig, read_config, reconciled
from gpu_tenancy.packs.findings import Finding, Kind, Outcome, PackResult, RuleState
from gpu_tenancy.packs.process import Client, pack_process

_WHERE: Final = "the configuration"
_LEVELS: Final = {number: level for level, number in LEVELS.items()}
_SEVERITIES: Final = {
    wire.PolicySeverity.Value(f"POLICY_SEVERITY_{name.upper()}"): name for name in ("low", "medium", "high", "critical")
}


def evaluate(rendered: Rendered, chosen: Sequence[PackChoice]) -> list[PackResult]:
    """Evaluates packs in parallel processes; raises ConsoleError if one does not run, or its configuration is wrong."""
    request = stack_request(rendered)
    with ThreadPoolExecutor(max(1, len(chosen))) as threads:
        return list(threads.map(partial(_evaluate_pack, rendered, request), chosen))


def _evaluate_pack(rendered: Rendered, request: wire.AnalyzeStackRequest, chosen: PackChoice) -> PackResult:
    with pack_process(chosen.folder) as client:
        given = read_config(chosen.config) if chosen.config else {}
        session = Session.of(client, given, str(chosen.config), chosen.stack)
        client.open(rendered.project, rendered.stack)
        return session.evaluate(request)


@dataclass(frozen=True, slots=True)
class Session:
    """A configured pack: the connection to its process, its description of itself, its levels and settings."""

    client: Client
    info: wire.AnalyzerInfo
    config: wire.ConfigureAnalyzerRequest

    @classmethod
    def of(
        cls, client: Client, given: Mapping[str, RuleConfig], where: str = _WHERE, stack: Stack | None = None
    ) -> "Session":
        """Reads a pack's description, and configures it. Raises ConsoleError for an invalid configuration."""
        info = client.info()
        config = reconciled(info, given, where, stack)
        client.configure(config)
        return cls(client, info, config)

    def evaluate(self, stack: wire.AnalyzeStackRequest) -> PackResult:
        """Evaluates each resource, after remedies if rules have that level, and then the stack."""
        findings: list[Finding] = []
        if remedies := any(config.enforcementLevel == wire.REMEDIATE for config in self.config.policyConfig.values()):
            stack = deepcopy(stack)  # which other packs evaluate as it is
        for resource, request in zip(stack.resources, resource_requests(stack), strict=True):
            for remedy in self.client.remediate(request) if remedies else ():
                if not remedy.diagnostic:
                    for changed in (request, resource):
                        changed.properties.CopyFrom(remedy.properties)
                findings.append(self._remedied(remedy, request))
            reported = self.client.analyze(request)
            findings += [self._finding(diagnostic, outcome, request.urn) for diagnostic, outcome in reported]
        reported = self.client.analyze_stack(stack)
        findings += [self._finding(diagnostic, outcome, "") for diagnostic, outcome in reported]
        states = {
            name: RuleState(_LEVELS[config.enforcementLevel], MessageToDict(config.properties))
            for name, config in sorted(self.config.policyConfig.items())
        }
        return PackResult(self.info.name, self.info.version, states, tuple(findings))

    def _remedied(self, remedy: wire.Remediation, request: wire.AnalyzeRequest) -> Finding:
        place = f"{request.type.rpartition(':')[2]} {request.name}"
        return Finding(
            pack=self.info.name,
            rule=remedy.policyName,
            kind="advice" if remedy.diagnostic else "mended",
            severity=self._severity(remedy.policyName),
            urn=request.urn,
            message=f"{place}: {remedy.diagnostic or 'remedy applied'}",
            outcome=Outcome.BROKEN if remedy.diagnostic else Outcome.REMEDIED,
        )

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


# The requests of the engine.

_INTERNAL: Final = "__"  # prefix of provider-internal keys; the engine does not send them to policy packs


def resource_requests(stack: wire.AnalyzeStackRequest) -> Iterator[wire.AnalyzeRequest]:
    """One request for each resource of a stack's request, made when it is read, because all take as much memory."""
    for resource in stack.resources:
        yield wire.AnalyzeRequest(
            type=resource.type,
            urn=resource.urn,
            name=resource.name,
            properties=resource.properties,
            options=resource.options,
            provider=resource.provider if resource.HasField("provider") else None,
        )


def stack_request(rendered: Rendered) -> wire.AnalyzeStackRequest:
    """The request that the engine sends in the preview of a new stack: all resources, in a possible order.

    A resource that is only read (`Namespace.get(…)`) is left out: the engine sends no request for it. Outputs equal the
    inputs, because a provider's additions are known only after deployment.
    """
    own = [registration for registration in rendered.registrations if not registration.external_id]
    providers = {provider.urn: provider for provider in own if provider.type.startswith("pulumi:providers:")}
    root = Registration(
        f"urn:pulumi:{rendered.stack}::{rendered.project}::{STACK_TYPE}::{rendered.project}-{rendered.stack}",
        STACK_TYPE,
        f"{rendered.project}-{rendered.stack}",
        custom=False,
        inputs={},
    )
    hosts = {
        urn: wire.AnalyzerProviderResource(type=provider.type, urn=urn, name=provider.name, properties=struct(provider))
        for urn, provider in providers.items()
    }
    stack = wire.AnalyzeStackRequest()
    for registration in (root, *_in_order(own)):
        parent = "" if registration is root else registration.parent or root.urn
        resource = stack.resources.add(
            type=registration.type,
            urn=registration.urn,
            name=registration.name,
            options=_options(registration, parent),
            provider=hosts.get(registration.provider.rpartition("::")[0]),
            parent=parent,
            dependencies=registration.dependencies,
            propertyDependencies={
                key: wire.AnalyzerPropertyDependencies(urns=urns)
                for key, urns in registration.property_dependencies.items()
            },
        )
        _fill(resource.properties, registration)
    return stack


def struct(registration: Registration) -> Struct:
    """A resource's inputs in the protocol's form, with secrets marked; unknown values are marked already."""
    properties = Struct()
    _fill(properties, registration)
    return properties


def _fill(properties: Struct, registration: Registration) -> None:
    marked: Json = dict(registration.inputs)
    # Innermost first: a secret may contain another one.
    for path in sorted(registration.secret_paths, key=len, reverse=True):
        marked = _wrapped(marked, path)
    properties.SetInParent()
    if isinstance(marked, dict):
        properties.update({key: value for key, value in marked.items() if not key.startswith(_INTERNAL)})


def _wrapped(value: Json, path: Path) -> Json:
    if not path:
        return {SIGNATURE: SECRET, "value": value}
    key, rest = path[0], path[1:]
    if isinstance(value, dict) and isinstance(key, str):
        return {**value, key: _wrapped(value[key], rest)}
    if isinstance(value, list) and isinstance(key, int):
        return [*value[:key], _wrapped(value[key], rest), *value[key + 1 :]]
    return value


def _in_order(registrations: Sequence[Registration]) -> Iterator[Registration]:
    """Dependencies before their dependents; otherwise in the order of URNs."""
    known = {registration.urn: registration for registration in registrations}
    needs: dict[str, list[str]] = {}
    for urn, registration in sorted(known.items()):
        needed = {registration.parent, *registration.dependencies, registration.provider.rpartition("::")[0]}
        needs[urn] = sorted(needed & known.keys() - {urn})
    try:
        order = list(TopologicalSorter(needs).static_order())
    except CycleError:
        order = sorted(known)
    return (known[urn] for urn in order)


def _options(registration: Registration, parent: str) -> wire.AnalyzerResourceOptions:
    return wire.AnalyzerResourceOptions(
        protect=registration.protect,
        ignoreChanges=registration.ignore_changes,
        deleteBeforeReplace=registration.delete_before_replace,
        deleteBeforeReplaceDefined=registration.delete_before_replace,
        additionalSecretOutputs=registration.additional_secret_outputs,
        aliases=registration.aliases,
        customTimeouts=wire.AnalyzerResourceOptions.CustomTimeouts(),
        parent=parent,
    )
