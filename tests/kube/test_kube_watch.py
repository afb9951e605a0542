"""Changes of objects as they happen."""

from collections.abc import Iterator

import pytest
from cluster_builders import a_config_map

from gpu_tenancy.base.json import text_at
from gpu_tenancy.kube.client import Cluster, Event
from gpu_tenancy.kube.errors import ApiError, UnknownKindError
from gpu_tenancy.kube.references import Reference


def own(events: Iterator[Event]) -> Iterator[Event]:
    """Without bookmarks, and the ConfigMap that the controller manager makes in each namespace at any time."""
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


def test_a_watch_from_an_invalid_version_is_an_error(cluster: Cluster, namespace: str) -> None:
    with pytest.raises(ApiError, match='resourceVersion: Invalid value: "yesterday"'):
        next(cluster.watch("v1", "ConfigMap", namespace=namespace, since="yesterday"))


def test_only_a_known_kind_can_be_watched(cluster: Cluster, namespace: str) -> None:
    with pytest.raises(UnknownKindError):
        next(cluster.watch("example.com/v1", "Nothing", namespace=namespace))
