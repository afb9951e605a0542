"""A node pool that cannot start fails alone: nothing else in a cluster waits for it."""

from typing import Final

import pytest
from builders import Data
from cloud_stacks import eks_creation, eks_section, eks_stack
from components_builders import platform, program
from dependency_graph import Graph
from pulumi.runtime.proto.resource_pb2 import RegisterResourceRequest, RegisterResourceResponse, Result
from rendered_stacks import stack_of_repository

from gpu_tenancy.engine.recording import RecordingMonitor

CLOUD_STACKS: Final = ("dev-aws", "prod-aws", "prod-gcp", "prod-azure")
SYSTEM: Final = ("::cluster-system-group", "::cluster-gpu-tenancy-system")
"""Ends of the URNs of system nodes."""
POOLS: Final = {"NodeGroup", "NodePool", "AgentPool"}


def pools(found: Graph) -> set[str]:
    """Node pools by URN, also those that are objects of Karpenter."""
    return {urn for urn, one in found.known.items() if one.custom and one.type.rpartition(":")[2] in POOLS}


@pytest.mark.parametrize("name", [*CLOUD_STACKS, "karpenter"])
def test_a_pool_without_capacity_blocks_nothing_in_the_cluster(name: str) -> None:
    """All pools fail, and what waits for them with them: no object, release or right is among these."""
    dependencies = Graph(
        platform(on_karpenter()).rendered if name == "karpenter" else stack_of_repository(name).rendered
    )
    failing = {urn for urn in pools(dependencies) if not urn.endswith(SYSTEM)}
    assert len(failing) > 1
    blocked = {one.type for one in dependencies.known.values() if failing & dependencies.all_needs(one)}
    assert blocked <= {"aws:autoscaling/tag:Tag"}  # it describes the pool itself to Cluster Autoscaler


def on_karpenter() -> Data:
    return eks_stack(eks_creation(eks_section(autoscaler="karpenter")))


def test_the_program_goes_on_where_the_engine_reports_failed_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with `--continue-on-error`: all else is registered, with the inputs that it has anyway."""
    body = "from components.platform import build\nbuild(made)"
    expected = program(on_karpenter(), body).rendered.registrations
    register = RecordingMonitor.RegisterResource

    def failing(monitor: RecordingMonitor, request: RegisterResourceRequest) -> RegisterResourceResponse:
        response = register(monitor, request)
        if request.type.endswith(":NodePool"):
            return RegisterResourceResponse(urn=response.urn, result=Result.FAIL)
        return response

    monkeypatch.setattr(RecordingMonitor, "RegisterResource", failing)
    registered = program(on_karpenter(), body).rendered.registrations
    assert [(one.urn, one.inputs) for one in registered] == [(one.urn, one.inputs) for one in expected]
    assert len(expected) > 50
