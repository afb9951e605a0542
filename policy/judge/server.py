"""A pack as a process that Pulumi's engine asks, by its public analyzer protocol.

The SDK's own server (`pulumi_policy.PolicyPack`) reads a resource's properties anew for each rule, and all of a stack's
for each rule that compares. Here they are read once: benchmarks/policies.py holds both against one another. The
protocol: https://github.com/pulumi/pulumi/blob/master/proto/pulumi/analyzer.proto.
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

from judge.remedies import remedied
from judge.resources import read
from judge.rules import AnyRule, ConfigError, Pack
from judge.secrets import Secrets
from judge.stacks import Stack
from judge.verdicts import Court, Finding

_LARGEST: Final = 400 * 1024 * 1024
"""Bytes of one message, as the SDK takes."""
_GRACE: Final = 5.0
"""Seconds for what was asked before the end."""
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
    """Answers the engine for one pack."""

    def __init__(self, court: Court, ended: threading.Event | None = None) -> None:
        self.court = court
        self._ended = ended or threading.Event()

    def Handshake(  # noqa: N802 - the protocol's
        self,
        request: wire.AnalyzerHandshakeRequest,  # noqa: ARG002 - nothing is asked of the engine
        context: grpc.ServicerContext,  # noqa: ARG002 - the protocol's
    ) -> wire.AnalyzerHandshakeResponse:
        """The engine's first call."""
        return wire.AnalyzerHandshakeResponse()

    def Cancel(self, request: empty_pb2.Empty, context: grpc.ServicerContext) -> empty_pb2.Empty:  # noqa: ARG002, N802 - the protocol's
        """Ends the process, once what it was asked before is answered."""
        self._ended.set()
        return empty_pb2.Empty()

    def GetAnalyzerInfo(self, request: empty_pb2.Empty, context: grpc.ServicerContext) -> wire.AnalyzerInfo:  # noqa: ARG002, N802 - the protocol's
        """What the pack is, and all of its rules."""
        pack = self.court.pack
        return wire.AnalyzerInfo(
            name=pack.name,
            version=pack.version,
            description=pack.description,
            supportsConfig=True,
            policies=[_info(rule) for rule in self.court.rules],
        )

    def GetPluginInfo(self, request: empty_pb2.Empty, context: grpc.ServicerContext) -> plugin_pb2.PluginInfo:  # noqa: ARG002, N802 - the protocol's
        """The version of the SDK whose protocol this is."""
        return plugin_pb2.PluginInfo(version=VERSION)

    def Configure(self, request: wire.ConfigureAnalyzerRequest, context: grpc.ServicerContext) -> empty_pb2.Empty:  # noqa: N802 - the protocol's
        """Takes levels and settings; refuses what no rule understands.

        The engine sends every rule, with its defaults where nobody set anything, and the word `all` if that was set,
        which it has already applied: pkg/resource/analyzer/config.go in pulumi/pulumi.
        """
        back = {number: level for level, number in LEVELS.items()}
        levels = {name: back[each.enforcementLevel] for name, each in request.policyConfig.items()}
        settings = {name: json_format.MessageToDict(each.properties) for name, each in request.policyConfig.items()}
        try:
            self.court.configure(levels, settings)
        except ConfigError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        return empty_pb2.Empty()

    def ConfigureStack(  # noqa: N802 - the protocol's
        self,
        request: wire.AnalyzerStackConfigureRequest,  # noqa: ARG002 - no rule is about a stack's tags
        context: grpc.ServicerContext,  # noqa: ARG002 - the protocol's
    ) -> wire.AnalyzerStackConfigureResponse:
        """Hears which stack comes."""
        return wire.AnalyzerStackConfigureResponse()

    def Analyze(self, request: wire.AnalyzeRequest, context: grpc.ServicerContext) -> wire.AnalyzeResponse:  # noqa: ARG002, N802 - the protocol's
        """Judges one resource."""
        if not self.court.about(request.type):
            return wire.AnalyzeResponse()
        return self._answer(self.court.judge(read(request)))

    def AnalyzeStack(self, request: wire.AnalyzeStackRequest, context: grpc.ServicerContext) -> wire.AnalyzeResponse:  # noqa: ARG002, N802 - the protocol's
        """Judges a whole stack."""
        about = self.court.about
        if not any(about(each.type) for each in request.resources):
            return wire.AnalyzeResponse()
        # All of them: a rule may look for what no rule is about. Each is read only if one does.
        secrets = Secrets()
        stack = Stack(read(each, secrets) for each in request.resources)
        return self._answer(self.court.judge_stack(stack))

    def Remediate(self, request: wire.AnalyzeRequest, context: grpc.ServicerContext) -> wire.RemediateResponse:  # noqa: ARG002, N802 - the protocol's
        """Mends one resource by the rules whose level is `remediate`, one after the other."""
        return remedied(self.court, request)

    def _answer(self, findings: list[Finding]) -> wire.AnalyzeResponse:
        pack = self.court.pack
        return wire.AnalyzeResponse(
            diagnostics=[
                wire.AnalyzeDiagnostic(
                    policyName=found.rule.name,
                    policyPackName=pack.name,
                    policyPackVersion=pack.version,
                    description=found.rule.says,
                    message=f"{found.rule.says}\n{found.message}",
                    enforcementLevel=LEVELS[found.level],
                    severity=_SEVERITIES[found.rule.severity],
                    urn=found.urn,
                )
                for found in findings
            ]
        )


def _info(rule: AnyRule) -> wire.PolicyInfo:
    found = wire.PolicyInfo(
        name=rule.name,
        displayName=rule.name.replace("-", " ").capitalize(),
        description=rule.says,
        message=rule.why,
        enforcementLevel=LEVELS[rule.level],
        severity=_SEVERITIES[rule.severity],
        policy_type=wire.POLICY_TYPE_STACK if rule.whole else wire.POLICY_TYPE_RESOURCE,
        remediation_steps=rule.mend,
        url=rule.link,
    )
    if schema := rule.schema():
        found.configSchema.properties.update(schema)
    return found


def serve(pack: Pack) -> None:
    """Answers the engine until it ends this process; prints the port on which it listens, at loopback."""
    ended = threading.Event()
    server = grpc.server(
        futures.ThreadPoolExecutor(max_workers=1),
        options=[("grpc.max_receive_message_length", _LARGEST), ("grpc.max_send_message_length", _LARGEST)],
    )
    analyzer_pb2_grpc.add_AnalyzerServicer_to_server(Analyzer(Court(pack), ended), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    ended.wait()
    server.stop(grace=_GRACE).wait()
