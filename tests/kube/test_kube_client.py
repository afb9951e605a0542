"""The client: requests, their retries and errors, watches, deletions and waits."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pulumi
import pytest
from cli_builders import Project, small
from cluster_builders import Manifest, a_config_map, a_definition, a_job, a_kubeconfig, an_object
from google.protobuf.struct_pb2 import Struct
from pulumi.runtime.proto import resource_pb2

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import Json, at, text_at
from gpu_tenancy.base.problems import StackError
from gpu_tenancy.engine.project import preview
from gpu_tenancy.engine.recording import RecordingMonitor
from gpu_tenancy.kube.apply import immutable
from gpu_tenancy.kube.client import Cluster, Event
from gpu_tenancy.kube.errors import ApiError, Cause, UnknownKindError, UnreachableError, WaitTimeoutError, api_error
from gpu_tenancy.kube.live import Live
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.request import FIELD_MANAGER, RetryBudget, transient
from gpu_tenancy.model.load import load
from gpu_tenancy.model.source import Source


@pytest.fixture
def held(cluster: Cluster, namespace: str) -> Iterator[Reference]:
    """An object with a finalizer that blocks its deletion."""
    manifest = a_config_map("held", namespace)
    manifest["metadata"] = {"name": "held", "namespace": namespace, "finalizers": ["tests.example.com/held"]}
    cluster.create(manifest)
    reference = Reference.of(manifest)
    yield reference
    if cluster.exists(*reference):
        cluster.patch(reference, {"metadata": {"finalizers": None}})


def test_a_missing_object_is_none(cluster: Cluster, namespace: str) -> None:
    assert cluster.get("v1", "ConfigMap", "settings", namespace) is None
    assert not cluster.exists("v1", "ConfigMap", "settings", namespace)


def test_metadata_only_omits_the_rest(cluster: Cluster, namespace: str) -> None:
    answer = cluster.apply(a_config_map("settings", namespace, a="1"), metadata_only=True)
    (listed,) = cluster.list("v1", "ConfigMap", namespace=namespace, labels="owner=tests", metadata_only=True)
    assert "data" not in answer
    assert "data" not in listed
    assert listed["kind"] == "ConfigMap"
    assert text_at(listed, "metadata", "resourceVersion") == text_at(answer, "metadata", "resourceVersion")


def test_a_list_is_of_one_namespace_and_one_label(cluster: Cluster, namespace: str) -> None:
    other = a_config_map("other", namespace)
    other["metadata"] = {"name": "other", "namespace": namespace, "labels": {"owner": "others"}}
    for one in (a_config_map("first", namespace), a_config_map("second", namespace), other):
        cluster.apply(one)
    listed = cluster.list("v1", "ConfigMap", namespace=namespace, labels="owner=tests")
    assert [text_at(one, "metadata", "name") for one in listed] == ["first", "second"]
    assert {(one["apiVersion"], one["kind"]) for one in listed} == {("v1", "ConfigMap")}


def test_a_list_of_several_pages_is_complete(cluster: Cluster, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_tenancy.kube.client._PAGE", "2")
    for number in range(5):
        cluster.apply(a_config_map(f"n{number}", namespace))
    assert len(cluster.list("v1", "ConfigMap", namespace=namespace, labels="owner=tests")) == 5


def test_a_dry_run_stores_nothing(cluster: Cluster, namespace: str) -> None:
    manifest = a_config_map("settings", namespace)
    cluster.apply(manifest, dry_run=True)
    cluster.create(manifest, dry_run=True)
    assert not cluster.exists("v1", "ConfigMap", "settings", namespace)


def test_a_field_of_another_is_taken_by_force_alone(cluster: Cluster, namespace: str) -> None:
    cluster.create(a_config_map("settings", namespace, a="theirs"))
    with pytest.raises(ApiError) as refused:
        cluster.apply(a_config_map("settings", namespace, a="ours"))
    assert (refused.value.status, refused.value.reason) == (409, "Conflict")
    assert [cause.field for cause in refused.value.causes] == [".data.a"]
    taken = cluster.apply(a_config_map("settings", namespace, a="ours"), force=True)
    assert taken["data"] == {"a": "ours"}


def test_a_status_is_patched_as_a_controller_does(cluster: Cluster, namespace: str) -> None:
    quota = an_object("v1", "ResourceQuota", "gpus", namespace, spec={"hard": {"requests.nvidia.com/gpu": "8"}})
    cluster.apply(quota)
    used: Manifest = {"status": {"used": {"requests.nvidia.com/gpu": "3"}}}
    answer = cluster.patch(Reference.of(quota), used, subresource="status")
    assert at(answer, "status", "used", "requests.nvidia.com/gpu") == "3"


def test_a_refusal_has_the_servers_message_and_each_cause(cluster: Cluster, namespace: str) -> None:
    service = an_object("v1", "Service", "model", namespace, spec={"ports": [{"port": 0}, {"port": 70000}]})
    with pytest.raises(ApiError) as refused:
        cluster.apply(service)
    error = refused.value
    assert (error.status, error.reason) == (422, "Invalid")
    assert error.message.startswith('Service "model" is invalid')
    assert {"spec.ports[0].port", "spec.ports[1].port"} <= {cause.field for cause in error.causes}
    assert "must be between 1 and 65535" in str(error)


def test_an_unknown_field_is_refused_by_name(cluster: Cluster, namespace: str) -> None:
    job = a_job("train", namespace, "pytorch:2")
    job["spec"] = {"template": {}, "paralelism": 2}
    with pytest.raises(ApiError, match="paralelism"):
        cluster.apply(job)
    with pytest.raises(ApiError, match="paralelism"):
        cluster.create(job)


def test_an_existing_object_is_not_created_again(cluster: Cluster, namespace: str) -> None:
    cluster.create(a_config_map("settings", namespace))
    with pytest.raises(ApiError) as refused:
        cluster.create(a_config_map("settings", namespace))
    assert (refused.value.status, refused.value.reason) == (409, "AlreadyExists")


def test_unknown_kind_is_refused_until_it_is_defined(cluster: Cluster, namespace: str) -> None:
    group = f"{namespace}.example.com"
    with pytest.raises(UnknownKindError, match=rf'no matches for kind "Widget" in version "{group}/v1"'):
        cluster.list(f"{group}/v1", "Widget")
    definition = a_definition(group)
    cluster.apply(definition)
    try:
        assert cluster.wait_for(lambda: _served(cluster, f"{group}/v1"))
        assert cluster.list(f"{group}/v1", "Widget") == ()
    finally:
        cluster.delete(Reference.of(definition))


def test_kind_is_unknown_after_definition_is_deleted(cluster: Cluster, namespace: str) -> None:
    group = f"{namespace}.example.com"
    definition = a_definition(group)
    cluster.apply(definition)
    try:
        assert cluster.wait_for(lambda: _served(cluster, f"{group}/v1"))
    finally:
        cluster.delete(Reference.of(definition))

    def unknown() -> bool:
        try:
            return bool(cluster.list(f"{group}/v1", "Widget"))
        except UnknownKindError:
            return True

    assert cluster.wait_for(unknown)
    assert not _served(cluster, f"{group}/v1")


def _served(cluster: Cluster, api_version: str) -> bool:
    try:
        return cluster.resource(api_version, "Widget").namespaced
    except UnknownKindError:
        return False


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        (an_object("v1", "ConfigMap", "settings"), "ConfigMap is namespaced; set metadata.namespace"),
        (an_object("v1", "Namespace", "ml", "ml"), "Namespace is cluster-scoped; remove metadata.namespace"),
        (
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "ml"}},
            "ConfigMap: metadata.name is missing",
        ),
    ],
)
def test_refuses_wrong_scope_and_missing_name(cluster: Cluster, manifest: Manifest, message: str) -> None:
    with pytest.raises(ApiError, match=message):
        cluster.apply(manifest)


def test_deletion_waits_for_completion(cluster: Cluster, namespace: str) -> None:
    manifest = a_config_map("settings", namespace)
    cluster.apply(manifest)
    cluster.delete(Reference.of(manifest))
    assert not cluster.exists(*Reference.of(manifest))
    cluster.delete(Reference.of(manifest))


@pytest.mark.usefixtures("impatient")
def test_a_stuck_deletion_names_its_finalizer(cluster: Cluster, held: Reference) -> None:
    with pytest.raises(
        WaitTimeoutError, match=r"ConfigMap .*/held to be deleted; .*finalizer tests\.example\.com/held"
    ):
        cluster.delete(held, wait=0.2)


def test_another_object_of_the_same_name_is_not_deleted(cluster: Cluster, namespace: str) -> None:
    manifest = a_config_map("settings", namespace)
    cluster.apply(manifest)
    with pytest.raises(ApiError) as refused:
        cluster.delete(Reference.of(manifest), uid="00000000-0000-0000-0000-000000000000")
    assert refused.value.status == 409
    assert cluster.exists(*Reference.of(manifest))


def test_waiting_returns_the_first_answer(cluster: Cluster) -> None:
    answers = iter([None, False, "ready"])
    assert cluster.wait_for(lambda: next(answers), poll=0.01) == "ready"


@pytest.mark.usefixtures("impatient")
def test_a_timeout_names_what_it_waited_for(cluster: Cluster) -> None:
    with pytest.raises(WaitTimeoutError, match=r"timed out after 0\.05 s waiting for a pod"):
        cluster.wait_for(lambda: None, timeout=0.05, poll=0.01, what="a pod")


def test_a_server_that_does_not_answer_is_named(tmp_path: Path) -> None:
    config = a_kubeconfig(tmp_path / "kubeconfig", {"server": "https://127.0.0.1:1"}, {"token": "none"})
    with Cluster(config) as nobody:
        assert not nobody.ready()
        with pytest.raises(UnreachableError, match=r"https://127\.0\.0\.1:1 is not reachable"):
            nobody.list("v1", "Namespace")


def test_a_kubeconfig_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConsoleError, match="kubeconfig: No such file or directory; make it readable, or specify ano"):
        Cluster(tmp_path / "kubeconfig")


def own(events: Iterator[Event]) -> Iterator[Event]:
    """Without bookmarks, and the ConfigMap that the controller manager creates in each namespace at any time."""
    return (event for event in events if seen(event)[1] not in {"", "kube-root-ca.crt"})


def seen(event: Event) -> tuple[str, str]:
    return event.type, text_at(event.object, "metadata", "name")


def test_a_watch_starts_with_existing_objects(cluster: Cluster, namespace: str) -> None:
    cluster.apply(a_config_map("first", namespace))
    events = own(cluster.watch("v1", "ConfigMap", namespace=namespace))
    assert seen(next(events)) == ("ADDED", "first")
    cluster.apply(a_config_map("second", namespace))
    assert seen(next(events)) == ("ADDED", "second")
    cluster.apply(a_config_map("first", namespace, a="1"))
    changed = next(events)
    assert seen(changed) == ("MODIFIED", "first")
    assert changed.object["data"] == {"a": "1"}
    cluster.delete(Reference("v1", "ConfigMap", "first", namespace))
    assert seen(next(events)) == ("DELETED", "first")


def test_a_watch_continues_after_the_last_known_event(cluster: Cluster, namespace: str) -> None:
    first = cluster.apply(a_config_map("first", namespace))
    cluster.apply(a_config_map("second", namespace))
    since = text_at(first, "metadata", "resourceVersion")
    events = own(cluster.watch("v1", "ConfigMap", namespace=namespace, since=since))
    assert seen(next(events)) == ("ADDED", "second")


def test_a_watch_ends_after_its_seconds(cluster: Cluster, namespace: str) -> None:
    cluster.apply(a_config_map("first", namespace))
    events = cluster.watch("v1", "ConfigMap", namespace=namespace, seconds=1)
    assert ("ADDED", "first") in {seen(event) for event in events}


def test_a_watch_has_bookmarks_to_continue_from(cluster: Cluster, namespace: str) -> None:
    bookmark = next(cluster.watch("v1", "LimitRange", namespace=namespace, seconds=5))
    assert bookmark.type == "BOOKMARK"
    assert text_at(bookmark.object, "metadata", "resourceVersion")


def test_a_watch_from_a_forgotten_version_is_an_error(cluster: Cluster, namespace: str) -> None:
    with pytest.raises(ApiError) as raised:
        next(cluster.watch("kueue.x-k8s.io/v1beta2", "LocalQueue", namespace=namespace, since="1"))
    assert raised.value.status == 410


def test_only_a_known_kind_and_version_can_be_watched(cluster: Cluster, namespace: str) -> None:
    with pytest.raises(ApiError, match='resourceVersion: Invalid value: "yesterday"'):
        next(cluster.watch("v1", "ConfigMap", namespace=namespace, since="yesterday"))
    with pytest.raises(UnknownKindError):
        next(cluster.watch("example.com/v1", "Nothing", namespace=namespace))


OTHER: Final = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
def registered(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The types of a program's registrations if it can read the API server, as by Pulumi's provider."""
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


def own_uid(cluster: Cluster) -> str:
    return text_at(cluster.get("v1", "Namespace", "kube-system") or {}, "metadata", "uid")


def test_the_stacks_own_cluster_is_accepted(cluster: Cluster, registered: list[str], tmp_path: Path) -> None:
    with_it = preview("good", with_uid(tmp_path, own_uid(cluster), context="gpu"))
    (provider,) = [one for one in with_it.rendered.registrations if one.name == "cluster"]
    assert provider.inputs["context"] == "gpu"
    assert "kubernetes:core/v1:Namespace" in registered
    without = Project.at(tmp_path / "without")
    without.write("good", small(cluster={**small()["cluster"], "context": "gpu"}))
    assert {one.name for one in with_it.objects} == {one.name for one in preview("good", without.folder).objects}


@pytest.mark.parametrize(
    ("more", "place"), [({"context": "gpu"}, "context gpu"), ({}, "the current context of the kubeconfig")]
)
def test_refuses_another_cluster_before_registering(
    cluster: Cluster, registered: list[str], tmp_path: Path, more: dict[str, str], place: str
) -> None:
    with pytest.raises(pulumi.RunError) as refused:
        preview("good", with_uid(tmp_path, OTHER, **more))
    assert str(refused.value) == (
        f"cluster.uid: {OTHER} is not the cluster of {place}, whose namespace kube-system has UID {own_uid(cluster)};"
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


WEBHOOK = b'{"message":"Internal error occurred: failed calling webhook \\"vjob.kb.io\\": failed to call webhook"}'
QUOTA = b'{"message":"Operation cannot be fulfilled on resourcequotas \\"budget\\": the object has been modified"}'


@pytest.mark.parametrize(
    ("method", "status", "content", "again"),
    [
        ("POST", 409, QUOTA, True),
        ("POST", 500, WEBHOOK, True),
        ("POST", 500, b'{"message":"Internal error occurred"}', False),
        ("POST", 409, b'{"reason":"AlreadyExists"}', False),
        ("PATCH", 409, b"Operation cannot be fulfilled on jobs.batch", False),
        ("POST", 503, b"", False),
        ("POST", 429, b"", True),
        ("GET", 503, b"", True),
        ("PATCH", 500, b"failed to create typed patch object", False),
    ],
)
def test_retries_create_only_if_nothing_was_stored(method: str, status: int, content: bytes, *, again: bool) -> None:
    assert transient(method, status, content) is again


def test_given_up_outage_ends_after_same_time_without_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    budget = RetryBudget(30)
    repeated: dict[float, bool] = {}
    for now[0] in (100, 120, 131, 150, 170, 201, 220):
        repeated[now[0]] = budget.pause(0) is not None
    assert repeated == {100: True, 120: True, 131: False, 150: False, 170: False, 201: True, 220: True}
    now[0] = 300
    assert budget.pause(1) is None  # however long each attempt of the same request takes


OURS: dict[str, Json] = {"manager": FIELD_MANAGER, "operation": "Apply", "time": "2026-01-01T00:00:00Z"}
THEIRS: dict[str, Json] = {"manager": "controller", "operation": "Update", "subresource": "status"}
LIVE = Live(uid="u", resource_version="1", deleting=False, generation=1, managed=(OURS, THEIRS))


@pytest.mark.parametrize(
    ("after", "changed"),
    [
        pytest.param(LIVE, False, id="nothing was written"),
        pytest.param(replace(LIVE, resource_version="2", managed=({**OURS, "time": "2026-01-01T00:00:09Z"}, THEIRS)),
            True, id="our entry moved"),
        pytest.param(replace(LIVE, resource_version="2", managed=(OURS, {**THEIRS, "time": "2026-01-01T00:00:09Z"})),
            False, id="a controller wrote a status meanwhile"),
        pytest.param(replace(LIVE, resource_version="2"), True, id="our entry moved within the same second"),
    ],
)  # fmt: skip
def test_a_change_is_ours_or_a_controllers(after: Live, *, changed: bool) -> None:
    assert after.changed_since(LIVE) is changed


def test_a_patched_status_is_not_an_apply() -> None:
    patched = replace(LIVE, managed=({**OURS, "subresource": "status"}, {**OURS, "operation": "Update"}))
    assert patched.applied is None


@pytest.mark.parametrize(
    "message",
    [
        "Invalid value: {…}: field is immutable",
        "Forbidden: spec.persistentvolumesource is immutable after creation",
        "Forbidden: pod updates may not change fields other than `spec.containers[*].image`",
        "Forbidden: updates to statefulset spec for fields other than 'replicas' are forbidden",
        "Forbidden: updates to parameters are forbidden.",
        "Forbidden: may not be changed in an update.",
        "Invalid value: null: may not change once set",
        "Invalid value: {…}: cannot change roleRef",
        "Value is immutable",
        "topologyName is immutable when topologyName is set",
    ],
)
def test_all_messages_of_immutable_fields_are_recognised(message: str) -> None:
    cause = Cause("spec", "FieldValueInvalid", message)
    assert immutable(ApiError(422, "Invalid", f"spec: {message}", (cause,)))
    assert not immutable(ApiError(403, "Forbidden", message))


def test_errors_beside_an_immutable_field_count() -> None:
    causes = (Cause("spec.a", "", "field is immutable"), Cause("spec.b", "", "must be positive"))
    assert not immutable(ApiError(422, "Invalid", "spec.a: field is immutable, spec.b: must be positive", causes))


def test_reads_immutable_fields_in_webhook_message() -> None:
    """As Kueue's webhook of LeaderWorkerSets answers."""
    denied = 'admission webhook "vleaderworkerset.kb.io" denied the request: '
    first = "spec.size: Invalid value: 3: field is immutable"
    other = 'spec.template.spec.containers[0].resources: Invalid value: {"cpu":"1"}: field is immutable'
    assert immutable(ApiError(403, "", f"{denied}{first}"))
    assert immutable(ApiError(403, "", f"{denied}[{first}, {other}]"))
    assert not immutable(ApiError(403, "", f"{denied}[{first}, spec.replicas: Invalid value: -1: must be >= 0]"))
    assert not immutable(ApiError(403, "", f"{denied}the team may not set this"))


def test_an_answer_without_a_status_is_shown_verbatim() -> None:
    error = api_error(502, "Bad Gateway", b"upstream is gone\n")
    assert (error.status, error.reason, error.message) == (502, "Bad Gateway", "upstream is gone")
    assert str(api_error(504, "Gateway Timeout", b"")) == "Gateway Timeout (504 Gateway Timeout)"
