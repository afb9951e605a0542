# ruff: noqa: ARG002, N802 - names and parameters of the protocol
"""The gRPC server of a pack, for Pulumi's analyzer protocol.

It reads properties once; the SDK's `pulumi_policy.PolicyPack` reads them for each rule. The protocol:
https://github.com/pulumi/pulumi/blob/master/proto/pulumi/analyzer.proto.
"""

import sys
import threading
from concurrent import futures
from copy import deepcopy
from typing import Any, Final

import grpc
from google.protobuf import empty_pb2, json_format
from google.protobuf.struct_pb2 import Struct
from pulumi.runtime.proto import analyzer_pb2 as wire
from pulumi.runtime.proto import analyzer_pb2_grpc, plugin_pb2
from pulumi_policy import EnforcementLevel, Severity
from pulumi_policy.version import VERSION

from rule_engine.evaluator import Evaluator, Finding
from rule_engine.exemptions import Exemption
from rule_engine.reading import UnknownValueError
from rule_engine.resources import read
from rule_engine.rules import AnyRule, ConfigError, Pack, Settings
from rule_engine.stacks import Stack
from rule_engine.values import Secrets

_LARGEST: Final = 400 * 1024 * 1024  # maximum message size in bytes, as in the SDK
OUTCOMES: Final = "gpu-rules-outcomes"  # trailing metadata: outcomes, comma-separated; the protocol has no field
UNCHECKED: Final = "gpu-rules-type"  # trailing metadata `unchecked`: no rule checks the request's type
_GRACE: Final = 5.0  # seconds for pending calls at shutdown
LEVELS: Final = {level: wire.EnforcementLevel.Value(level.name) for level in EnforcementLevel}
_SEVERITIES: Final = {
    severity: wire.PolicySeverity.Value(f"POLICY_SEVERITY_{severity.name}")
    for severity in (Severity.LOW, Severity.MEDIUM, Severity.HIGH, Severity.CRITICAL)
}


class Analyzer(analyzer_pb2_grpc.AnalyzerServicer):
    """The analyzer service of one pack."""

    def __init__(self, evaluator: Evaluator, ended: threading.Event | None = None) -> None:
        self.evaluator = evaluator
        self._ended = ended or threading.Event()
        self._inputs: dict[str, Struct] = {}  # of the resources of a deployment, by URN

    def Handshake(
        self, request: wire.AnalyzerHandshakeRequest, context: grpc.ServicerContext
    ) -> wire.AnalyzerHandshakeResponse:
        """The engine's first call."""
        return wire.AnalyzerHandshakeResponse()

    def Cancel(self, request: empty_pb2.Empty, context: grpc.ServicerContext) -> empty_pb2.Empty:
        """Shuts down after pending calls."""
        self._ended.set()
        return empty_pb2.Empty()

    def GetAnalyzerInfo(self, request: empty_pb2.Empty, context: grpc.ServicerContext) -> wire.AnalyzerInfo:
        """Name, version and rules of the pack."""
        pack = self.evaluator.pack
        return wire.AnalyzerInfo(
            name=pack.name,
            version=pack.version,
            description=pack.description,
            supportsConfig=True,
            policies=[_info(rule) for rule in self.evaluator.rules],
        )

    def GetPluginInfo(self, request: empty_pb2.Empty, context: grpc.ServicerContext) -> plugin_pb2.PluginInfo:
        """The version of the SDK that this server implements."""
        return plugin_pb2.PluginInfo(version=VERSION)

    def Configure(self, request: wire.ConfigureAnalyzerRequest, context: grpc.ServicerContext) -> empty_pb2.Empty:
        """Applies levels and settings; rejects unknown rules and invalid settings.

        The engine has already applied `all` and defaults: pkg/resource/analyzer/config.go in pulumi/pulumi.
        """
        by_number = {number: level for level, number in LEVELS.items()}
        configs = request.policyConfig.items()
        levels = {name: by_number[config.enforcementLevel] for name, config in configs}
        settings = {name: json_format.MessageToDict(config.properties) for name, config in configs}
        try:
            self.evaluator.configure(levels, settings)
        except ConfigError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        return empty_pb2.Empty()

    def ConfigureStack(
        self, request: wire.AnalyzerStackConfigureRequest, context: grpc.ServicerContext
    ) -> wire.AnalyzerStackConfigureResponse:
        """Receives the stack's name; not used."""
        return wire.AnalyzerStackConfigureResponse()

    def Analyze(self, request: wire.AnalyzeRequest, context: grpc.ServicerContext) -> wire.AnalyzeResponse:
        """Evaluates one resource."""
        self._inputs[request.urn] = request.properties
        if not self.evaluator.covers(request.type):
            context.set_trailing_metadata(((UNCHECKED, "unchecked"),))
            return wire.AnalyzeResponse()
        return self._answer(self.evaluator.evaluate(read(request)), context)

    def AnalyzeStack(self, request: wire.AnalyzeStackRequest, context: grpc.ServicerContext) -> wire.AnalyzeResponse:
        """Evaluates a whole stack."""
        covers = self.evaluator.covers
        if not any(covers(resource.type) for resource in request.resources):
            return wire.AnalyzeResponse()
        # All resources: a rule may look up resources that no rule checks. Each is read on first use only.
        secrets = Secrets()
        # In a preview, a provider with unknown settings, as of a cluster to create, has no outputs (`Create` in
        # https://github.com/pulumi/pulumi/blob/master/pkg/resource/plugin/provider_plugin.go): inputs stand for them.
        for resource in request.resources:
            if not resource.properties.fields and resource.urn in self._inputs:
                resource.properties.CopyFrom(self._inputs[resource.urn])
        stack = Stack(read(resource, secrets) for resource in request.resources)
        return self._answer(self.evaluator.evaluate_stack(stack), context)

    def Remediate(self, request: wire.AnalyzeRequest, context: grpc.ServicerContext) -> wire.RemediateResponse:
        """Applies the remedies of rules with the level `remediate` to one resource, rule after rule.

        Each remediation includes earlier changes. A resource with an exemption, or an unknown one, is not changed.
        """
        response = wire.RemediateResponse()
        evaluator = self.evaluator
        rules = [rule for rule in evaluator.rules if evaluator.level(rule) is EnforcementLevel.REMEDIATE]
        try:
            props: dict[str, Any] = json_format.MessageToDict(request.properties) if rules else {}
        except (ValueError, RecursionError):  # JSON cannot represent it (infinity, deep nesting): `Analyze` reports it
            return response
        resource = read(request)
        for rule in rules:
            if rule.remedy is None:
                reason = "this rule has no remedy; set its level to mandatory"
                response.not_applicable.add(policy_name=rule.name, reason=reason)
            elif isinstance(evaluator.exemption(resource, rule), (Exemption, UnknownValueError)):
                reason = "the resource is exempted from this rule"
                response.not_applicable.add(policy_name=rule.name, reason=reason)
            else:
                candidate = deepcopy(props)
                changed, diagnostic = _remedied(rule, request.type, candidate, evaluator.settings(rule))
                if not changed and not diagnostic:
                    continue
                remediation = response.remediations.add(diagnostic=diagnostic, **self._named(rule))
                if changed:
                    props = candidate
                    remediation.properties.SetInParent()
                    remediation.properties.update(props)
        return response

    def _named(self, rule: AnyRule) -> dict[str, str]:
        pack = self.evaluator.pack
        names = {"policyName": rule.name, "policyPackName": pack.name, "policyPackVersion": pack.version}
        return {**names, "description": rule.title}

    def _answer(self, findings: list[Finding], context: grpc.ServicerContext) -> wire.AnalyzeResponse:
        context.set_trailing_metadata(((OUTCOMES, ",".join(finding.outcome for finding in findings)),))
        return wire.AnalyzeResponse(
            diagnostics=[
                wire.AnalyzeDiagnostic(
                    message=f"{finding.rule.title}\n{finding.message}",
                    enforcementLevel=LEVELS[finding.level],
                    severity=_SEVERITIES[finding.rule.severity],
                    urn=finding.urn,
                    **self._named(finding.rule),
                )
                for finding in findings
            ]
        )


def _remedied(rule: AnyRule, type_: str, props: dict[str, Any], settings: Settings) -> tuple[bool, str]:
    """Whether a rule's remedy changed these properties, and why it could not."""
    try:
        return bool(rule.remedy and rule.remedy(type_, props, settings)), ""
    except UnknownValueError as error:
        return False, str(error)
    except Exception as error:  # noqa: BLE001 - a failing rule must not stop a deployment
        why = f"internal error ({type(error).__name__}); remedy not applied. Report it to the pack owner"
        return False, f"rule {rule.name}: {why}"


def _info(rule: AnyRule) -> wire.PolicyInfo:
    info = wire.PolicyInfo(
        name=rule.name,
        displayName=rule.name.replace("-", " ").capitalize(),
        description=rule.title,
        message=rule.rationale,
        enforcementLevel=LEVELS[rule.level],
        severity=_SEVERITIES[rule.severity],
        policy_type=wire.POLICY_TYPE_STACK if rule.whole else wire.POLICY_TYPE_RESOURCE,
        remediation_steps=rule.fix,
        url=rule.link,
    )
    if schema := rule.schema():
        info.configSchema.properties.update(schema)
    return info


def serve(pack: Pack) -> None:
    """Serves the engine until it cancels; prints the port on which it listens on loopback."""
    ended = threading.Event()
    server = grpc.server(
        futures.ThreadPoolExecutor(max_workers=1),
        options=[("grpc.max_receive_message_length", _LARGEST), ("grpc.max_send_message_length", _LARGEST)],
    )
    analyzer_pb2_grpc.add_AnalyzerServicer_to_server(Analyzer(Evaluator(pack), ended), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    ended.wait()
    server.stop(grace=_GRACE).wait()
