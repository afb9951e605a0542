"""Datasets in workloads, and their caches."""

from typing import Any

from builders import CREATED, GPU, Data, amounts, base, cohort_of, errors, patched, planned, stack, stack_of, tree_of

from gpu_tenancy.base.quantity import CPU, MEMORY
from gpu_tenancy.model.catalogue.storage import caches
from gpu_tenancy.model.plan.datasets import CachePlan, node_label
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.identities import caches_grants, data_grants
from gpu_tenancy.model.plan.needs import there
from gpu_tenancy.model.plan.shares import Tree

GIB = 2**30


def cached(bucket: str = "s3://ml-corpus/v3", dataset: Data | None = None, **cache: Any) -> Data:
    """Two teams, of which one mounts a dataset that has a cache on the A100 nodes."""
    return patched(base("cache"), {"datasets": {"corpus": {"bucket": bucket, **(dataset or {}), "accelerate": cache}}})


def the_cache(sections: Data) -> CachePlan:
    (cache,) = planned(sections).caches
    return cache


def memory(pod: str) -> int:
    """Memory of a pod of Alluxio without the cache."""
    return sum(container.memory for container in getattr(caches()["alluxio"].pods, pod).values())


def test_cache_is_divided_among_its_nodes() -> None:
    cache = the_cache(cached())
    assert (cache.replicas, cache.size) == (4, 200 * GIB)
    cache = the_cache(cached(replicas=3))
    assert (cache.replicas, cache.size % 2**20) == (3, 0)
    assert 800 * GIB <= cache.size * 3 < 800 * GIB + 3 * 2**20


def test_teams_get_references_to_cached_datasets() -> None:
    assert there(Environment(stack_of(cached())), "fluid")
    first, second = planned(cached()).teams
    assert (first.volumes, second.cached) == ((), ())
    (reference,) = first.cached
    assert (reference.mount, reference.writable) == ("dataset://dataset-caches/corpus/data", False)
    assert planned(stack()).caches == ()
    assert not there(Environment(stack_of(stack())), "fluid")


def test_resources_of_cache_pods_are_not_offered_to_teams() -> None:
    with_cache, without = Tree(stack_of(cached())), Tree(stack_of(stack(teams=cached()["teams"] | {}, datasets=PLAIN)))
    taken = {
        resource: without.supply("a100")[resource] - with_cache.supply("a100")[resource] for resource in (CPU, MEMORY)
    }
    # Four workers and mounts, one master.
    assert taken[MEMORY] == 800 * GIB + 4 * (memory("worker") + memory("fuse")) + memory("master")
    assert taken[CPU] == 4 * (2000 + 500 + 1000) + 1000 + 500
    assert with_cache.supply("a100")[GPU] == without.supply("a100")[GPU] == 32
    # The other flavor of the dataset's team has only mounts.
    assert without.supply("h100")[MEMORY] - with_cache.supply("h100")[MEMORY] == 2 * memory("fuse")


PLAIN: Data = {"corpus": {"bucket": "s3://ml-corpus/v3", "teams": ["a"]}}


def test_caches_reduce_only_flavors_of_their_teams() -> None:
    sections = cached()
    sections["teams"]["a"]["gpus"].pop("h100")
    flavors = Tree(stack_of(sections)).flavors
    assert flavors["h100"].caches.total == {}
    assert flavors["cpu"].caches.total == {CPU: 3 * 1000, MEMORY: 3 * memory("fuse")}


def test_all_gpus_can_be_guaranteed_beside_a_cache() -> None:
    sections = cached(warm=True)
    sections["teams"]["a"]["gpus"]["a100"] = {"guaranteed": 32}
    assert errors(sections) == []
    nominal, _, _ = amounts(cohort_of(planned(sections), "org"), "a100", MEMORY)
    assert nominal >= 0


def test_a_cache_on_disks_takes_no_memory_of_its_size() -> None:
    tree = Tree(stack_of(cached(medium="ssd")))
    assert tree.flavors["a100"].caches.total[MEMORY] == 4 * (memory("worker") + memory("fuse")) + memory("master")


def test_pods_prefer_nodes_of_the_cache() -> None:
    (train,) = planned(cached()).teams[0].jobs
    assert train.pod.caches == (node_label("corpus"),) == ("fluid.io/s-dataset-caches-corpus",)
    sections = cached()
    sections["teams"]["a"]["training"]["train"]["flavor"] = "h100"
    (train,) = planned(sections).teams[0].jobs
    assert train.pod.caches == ()
    (mount,) = train.pod.volumes.mounts
    assert mount.cached


def test_a_replaced_cache_is_loaded_again() -> None:
    first = the_cache(cached(warm=True)).load
    assert first is not None
    assert the_cache(cached()).load is None
    assert the_cache(cached(warm=True, replicas=2)).load == first
    for changed in (cached(warm=True, cache="400Gi"), cached("s3://ml-corpus/v4", warm=True)):
        other = the_cache(changed).load
        assert other is not None
        assert other[0] != first[0]


def test_buckets_are_mounted_with_keys_of_the_secret() -> None:
    s3 = the_cache(cached())
    assert s3.mount == "s3://ml-corpus/v3"
    assert s3.secret == {"aws.accessKeyId": ("keys", "accessKeyId"), "aws.secretKey": ("keys", "secretKey")}
    az = the_cache(cached("az://mlcorpus/corpus"))
    assert az.mount == "wasbs://corpus@mlcorpus.blob.core.windows.net/"
    assert az.secret == {"fs.azure.account.key.mlcorpus.blob.core.windows.net": ("keys", "accountKey")}
    gs = the_cache(cached("gs://ml-corpus"))
    assert (gs.mount, gs.options) == ("gs://ml-corpus/", {"alluxio.underfs.gcs.version": "1"})
    without = the_cache(cached("gs://ml-corpus", secret=None))
    assert (without.secret, without.options) == ({}, {})


def test_juicefs_mounts_by_the_metadata_engine_of_the_secret() -> None:
    cache = the_cache(cached(runtime="juicefs", medium="ssd", filesystem="corpus-fs"))
    assert (cache.kind, cache.mount, cache.mount_name) == ("JuiceFSRuntime", "juicefs:///", "corpus-fs")
    assert cache.secret == {"metaurl": ("keys", "metaurl")}
    (reference,) = planned(cached(runtime="juicefs", medium="ssd")).teams[0].cached
    assert reference.mount == "dataset://dataset-caches/corpus"


def test_the_cache_reads_the_folder_and_its_teams_do_not() -> None:
    sections = cached(runtime="juicefs", medium="ssd")
    (grant,) = caches_grants(stack_of(sections).datasets)
    assert (str(grant.folder), grant.writes) == ("s3://ml-corpus/v3", False)
    assert data_grants(stack_of(sections).datasets, "a") == ()
    # With the keys of a Secret, the identity needs no right.
    assert caches_grants(stack_of(cached()).datasets) == ()
    (grant,) = caches_grants(stack_of(cached("gs://ml-corpus", {"writable": True}, secret=None)).datasets)
    assert grant.writes


def test_teams_write_through_a_cache_only_if_they_may_write() -> None:
    sections = cached(dataset={"teams": ["a", "b"], "writers": ["b"]})
    assert the_cache(sections).writable
    assert [team.cached[0].writable for team in planned(sections).teams] == [False, True]


def created(**cache: Any) -> Data:
    return cached(medium="ssd", **cache) | {"cluster": CREATED}


def test_caches_of_created_clusters_have_a_cloud_identity() -> None:
    def owners(sections: Data) -> dict[str, tuple[str, ...]]:
        return {identity.team: identity.accounts for identity in planned(sections).cluster.identities}

    assert owners(created(runtime="juicefs", cache="400Gi")) == {"dataset-caches": ("default",)}
    assert owners(created()) == {}
    assert owners(cached(runtime="juicefs", medium="ssd")) == {}


# What pods mount.


def mounting(bucket: str = "gs://corpus", **of_team: Any) -> Data:
    """A job of four pods that mount a dataset."""
    return patched(base("mounts"), {"datasets": {"corpus": bucket}, "teams": {"a": of_team}})


def the_pod(sections: Data) -> Any:
    (training,) = planned(sections).teams[0].jobs
    return training.pod


def hard(sections: Data) -> dict[str, int]:
    (quota, *_) = planned(sections).teams[0].namespace.quotas
    return dict(quota.hard)


def test_datasets_are_mounted_read_only_unless_writable() -> None:
    (mount,) = the_pod(mounting()).volumes.mounts
    assert (mount.claim, mount.path, mount.read_only) == ("corpus", "/data", True)
    sections = mounting() | {"datasets": {"corpus": {"bucket": "gs://corpus", "writable": True}}}
    (mount,) = the_pod(sections).volumes.mounts
    assert not mount.read_only


def test_cloud_storage_fuse_gets_its_annotations() -> None:
    assert the_pod(mounting()).volumes.annotations == {
        "gke-gcsfuse/volumes": "true",
        "gke-gcsfuse/cpu-limit": "250m",
        "gke-gcsfuse/memory-limit": "256Mi",
    }


def test_other_object_storage_is_mounted_by_the_node() -> None:
    for bucket in ("s3://corpus", "az://account/corpus"):
        pod = the_pod(mounting(bucket))
        assert pod.volumes.mounts
        assert pod.volumes.annotations == {}


def test_sidecars_are_at_least_the_container_minimum() -> None:
    annotations = the_pod(mounting(containers={"min": {"cpu": "500m", "memory": "128Mi"}})).volumes.annotations
    assert (annotations["gke-gcsfuse/cpu-limit"], annotations["gke-gcsfuse/memory-limit"]) == ("500m", "256Mi")


def test_the_queue_leaves_room_for_the_sidecars_in_the_budget() -> None:
    quota, other = (tree_of(sections).team_shares["a"]["cpu"] for sections in (mounting(), mounting("s3://corpus")))
    assert ((other[CPU].limit or 0) - (quota[CPU].limit or 0)) == 4 * 250
    assert ((other[MEMORY].limit or 0) - (quota[MEMORY].limit or 0)) == GIB
    assert hard(mounting())["requests.cpu"] == 8000


def test_a_budget_by_default_includes_the_sidecars() -> None:
    sections = mounting(compute=None, quota={"cpu": {"cpu": {"guaranteed": 4}, "memory": {"guaranteed": "8Gi"}}})
    assert hard(sections)["requests.cpu"] == 4000 + 4 * 250
    assert hard(sections)["requests.memory"] == 9 * GIB
