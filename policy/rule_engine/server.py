"""The gRPC server of a pack, for Pulumi's analyzer protocol.

The SDK's server (`pulumi_policy.PolicyPack`) reads a resource's properties again for each rule, and all resources of a
stack for each stack rule. This one reads them once. The protocol:
 https://github.com/pulumi/pulumi/blob/master/proto/pulumi/analyzer.proto.
"""

import sys
import threading
from concurrent import futures
from typing import Final

import grpc
from google.protobuf import empty_pb2, json_format
from pulumi.runtime.proto import analyzer_pb2 as wire
from pulumi.runtime.proto import analyzer_pb2_grpc, plugin_pb2
from pulumi_policy import EnforcementLevel, Severity
from pulumi_policy.version import VERSION

from rule_engine.evaluator import Evaluator, Finding
from rule_engine.remedies import apply_remedies
from rule_engine.resources import read
from rule_engine.rules import AnyRule, ConfigError, Pack
from rule_engine.secrets import Secrets
from rule_engine.stacks import Stack

_LARGEST: Final = 400 * 1024 * 1024
"""Maximum message size in bytes, as in the SDK."""
OUTCOMES: Final = "gpu-rules-outcomes"
"""Trailing metadata of `Analyze` and `AnalyzeStack`: the outcome of each diagnostic, comma-separated.

The protocol has no field for it; clients that do not know the key ignore it.
"""
UNCHECKED: Final = "gpu-rules-type"
"""Trailing metadata of `Analyze`, with the value `unchecked`: no rule checks resources of the request's type.

A client that knows the key need not send more of them; the protocol has no list of types.
"""
_GRACE: Final = 5.0
"""Seconds for pending calls at shutdown."""
LEVELS: Final = {
    EnforcementLevel.ADVISORY: wire.ADVISORY,
    EnforcementLevel.MANDATORY: wire.MANDATORY,
    EnforcementLevel.DISABLED: wire.DISABLED,
    EnforcementLevel.REMEDIATE: wire.REMEDIATE,
}
_SEVERITIES: Final = {
    Severity.LOW: wire.POLICY_SEVERITY_LOW,
    Severity.MEDIUM: wire.POLICY_SEVERITY_MEDIUM,
    Severity.HIGH: wire.POLICY_SEVERITY_HIGH,
    Severity.CRITICAL: wire.POLICY_SEVERITY_CRITICAL,
}


class Analyzer(analyzer_pb2_grpc.AnalyzerServicer):
    """The analyzer service of one pack."""

    def __init__(self, evaluator: Evaluator, ended: threading.Event | None = None) -> None:
        self.evaluator = evaluator
        self._ended = ended or threading.Event()

    def Handshake(  # noqa: N802 - the protocol's
        self,
        request: wire.AnalyzerHandshakeRequest,  # noqa: ARG002 - this pack does not call the engine
        context: grpc.ServicerContext,  # noqa: ARG002 - the protocol's
    ) -> wire.AnalyzerHandshakeResponse:
        """The engine's first call."""
        return wire.AnalyzerHandshakeResponse()

    def Cancel(self, request: empty_pb2.Empty, context: grpc.ServicerContext) -> empty_pb2.Empty:  # noqa: ARG002, N802 - the protocol's
        """Shuts down after pending calls."""
        self._ended.set()
        return empty_pb2.Empty()

    def GetAnalyzerInfo(self, request: empty_pb2.Empty, context: grpc.ServicerContext) -> wire.AnalyzerInfo:  # noqa: ARG002, N802 - the protocol's
        """Name, version and rules of the pack."""
        pack = self.evaluator.pack
        return wire.AnalyzerInfo(
            name=pack.name,
            version=pack.version,
            description=pack.description,
            supportsConfig=True,
            policies=[_info(rule) for rule in self.evaluator.rules],
        )

    def GetPluginInfo(self, request: empty_pb2.Empty, context: grpc.ServicerContext) -> plugin_pb2.PluginInfo:  # noqa: ARG002, N802 - the protocol's
        """The version of the SDK that this server implements."""
        return plugin_pb2.PluginInfo(version=VERSION)

    def Configure(self, request: wire.ConfigureAnalyzerRequest, context: grpc.ServicerContext) -> empty_pb2.Empty:  # noqa: N802 - the protocol's
        """Applies levels and settings; rejects unknown rules and invalid settings.

        The engine sends every rule, with defaults for values that are not set, and also `all` if it was set, which it
        has already applied: pkg/resource/analyzer/config.go in pulumi/pulumi.
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

    def ConfigureStack(  # noqa: N802 - the protocol's
        self,
        request: wire.AnalyzerStackConfigureRequest,  # noqa: ARG002 - no rule checks a stack's tags
        context: grpc.ServicerContext,  # noqa: ARG002 - the protocol's
    ) -> wire.AnalyzerStackConfigureResponse:
        """Receives the stack's name; not used."""
        return wire.AnalyzerStackConfigureResponse()

    def Analyze(self, request: wire.AnalyzeRequest, context: grpc.ServicerContext) -> wire.AnalyzeResponse:  # noqa: N802 - the protocol's
        """Evaluates one resource."""
        if not self.evaluator.covers(request.type):
            context.set_trailing_metadata(((UNCHECKED, "unchecked"),))
            return wire.AnalyzeResponse()
        return self._answer(self.evaluator.evaluate(read(request)), context)

    def AnalyzeStack(self, request: wire.AnalyzeStackRequest, context: grpc.ServicerContext) -> wire.AnalyzeResponse:  # noqa: N802 - the protocol's
        """Evaluates a whole stack."""
        covers = self.evaluator.covers
        if not any(covers(resource.type) for resource in request.resources):
            return wire.AnalyzeResponse()
        # All resources: a rule may look up resources that no rule checks. Each is read on first use only.
        secrets = Secrets()
        stack = Stack(read(resource, secrets) for resource in request.resources)
        return self._answer(self.evaluator.evaluate_stack(stack), context)

    def Remediate(self, request: wire.AnalyzeRequest, context: grpc.ServicerContext) -> wire.RemediateResponse:  # noqa: ARG002, N802 - the protocol's
        """Applies the remedies of rules with the level `remediate` to one resource."""
        return apply_remedies(self.evaluator, request)

    def _answer(self, findings: list[Finding], context: grpc.ServicerContext) -> wire.AnalyzeResponse:
        pack = self.evaluator.pack
        context.set_trailing_metadata(((OUTCOMES, ",".join(finding.outcome for finding in findings)),))
        return wire.AnalyzeResponse(
            diagnostics=[
                wire.AnalyzeDiagnostic(
                    policyName=finding.rule.name,
                    policyPackName=pack.name,
                    policyPackVersion=pack.version,
                    description=finding.rule.title,
                    message=f"{finding.rule.title}\n{finding.message}",
                    enforcementLevel=LEVELS[finding.level],
                    severity=_SEVERITIES[finding.rule.severity],
                    urn=finding.urn,
                )
                for finding in findings
            ]
        )


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
