from gpu_tenancy.base.json import Json
from gpu_tenancy.engine.objects import KubernetesObject
from gpu_tenancy.local.settling import in_turns


def an_object(name: str, queue: str = "") -> KubernetesObject:
    labels: dict[str, Json] = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    return KubernetesObject({"kind": "Job", "metadata": {"name": name, "namespace": queue, "labels": labels}}, name)


def test_workloads_of_a_queue_follow_one_another_in_their_order() -> None:
    jobs = [an_object("first", "a"), an_object("second", "a"), an_object("other", "b"), an_object("third", "a")]
    wave = [an_object("claim"), *jobs, an_object("service")]
    names = [[item.name for item in turn] for turn in in_turns([[an_object("namespace")], wave])]
    assert names == [["namespace"], ["claim", "first", "other", "service"], ["second"], ["third"]]
