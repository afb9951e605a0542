"""A stack names its cluster by the UID of `kube-system`, read from a real API server; another one is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pulumi
import pytest
from cli_builders import Project, small
from google.protobuf.struct_pb2 import Struct
from pulumi.runtime.proto import resource_pb2

from gpu_tenancy.base.json import text_at
from gpu_tenancy.base.problems import StackError
from gpu_tenancy.engine.project import preview
from gpu_tenancy.engine.recording import RecordingMonitor
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.model.load import load
from gpu_tenancy.model.source import Source

OTHER: Final = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
def registered(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The types of what a program registers while it can read the API server, as by Pulumi's provider."""
    types: list[str] = []
    reading: Callable[..., resource_pb2.ReadResourceResponse] = RecordingMonitor.ReadResource
    registering: Callable[..., resource_pb2.RegisterResourceResponse] = RecordingMonitor.RegisterResource

    def read(monitor: RecordingMonitor, request: resource_pb2.ReadResourceRequest) -> resource_pb2.ReadResourceResponse:
        known = Struct()
        known.update(cluster.get("v1", "Namespace", request.id) or {})
        return resource_pb2.ReadResourceResponse(urn=reading(monitor, request).urn, properties=known)

    def register(
        monitor: RecordingMonitor, request: resource_pb2.RegisterResourceRequest
    ) -> resource_pb2.RegisterResourceResponse:
        types.append(request.type)
        return registering(monitor, request)

    monkeypatch.setattr(RecordingMonitor, "ReadResource", read)
    monkeypatch.setattr(RecordingMonitor, "RegisterResource", register)
    return types


def with_uid(folder: Path, uid: str, **more: str) -> Path:
    project = Project.at(folder / "project")
    project.write("good", small(cluster={**small()["cluster"], **more, "uid": uid}))
    return project.folder


def own(cluster: Cluster) -> str:
    return text_at(cluster.get("v1", "Namespace", "kube-system") or {}, "metadata", "uid")


def test_the_stacks_own_cluster_is_accepted(cluster: Cluster, registered: list[str], tmp_path: Path) -> None:
    with_it = preview("good", with_uid(tmp_path, own(cluster), context="gpu"))
    (provider,) = [one for one in with_it.rendered.registrations if one.name == "cluster"]
    assert provider.inputs["context"] == "gpu"
    assert "kubernetes:core/v1:Namespace" in registered
    without = Project.at(tmp_path / "without")
    without.write("good", small(cluster={**small()["cluster"], "context": "gpu"}))
    assert {one.name for one in with_it.objects} == {one.name for one in preview("good", without.folder).objects}


@pytest.mark.parametrize(
    ("more", "place"), [({"context": "gpu"}, "context gpu"), ({}, "the current context of the kubeconfig")]
)
def test_another_cluster_is_refused_before_anything_is_registered_there(
    cluster: Cluster, registered: list[str], tmp_path: Path, more: dict[str, str], place: str
) -> None:
    with pytest.raises(pulumi.RunError) as refused:
        preview("good", with_uid(tmp_path, OTHER, **more))
    assert str(refused.value) == (
        f"cluster.uid: {OTHER} is not the cluster of {place}, whose namespace kube-system has UID {own(cluster)};"
        " select the context of the stack's cluster (cluster.context), or correct cluster.uid"
    )
    assert not [one for one in registered if one.startswith("kubernetes:")]


def test_a_preview_without_a_cluster_leaves_it_open(tmp_path: Path) -> None:
    seen = preview("good", with_uid(tmp_path, OTHER))
    assert seen.objects
    assert "kube-system" not in {one.name for one in seen.objects}


def test_a_uid_has_the_form_of_one() -> None:
    with pytest.raises(StackError, match=r"cluster\.uid: prod "):
        load(Source(small(cluster={**small()["cluster"], "uid": "prod"})))
