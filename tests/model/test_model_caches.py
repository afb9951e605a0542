"""Caches of datasets: what they take from their nodes and from what teams share, and what is refused."""

from typing import Any

from builders import EKS, EXISTING, GPU, Data, amounts, cohort_of, errors, job, planned, pool, stack, team

from gpu_tenancy.base.quantity import CPU, MEMORY
from gpu_tenancy.model.catalogue.storage import caches
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan.caches import CachePlan, node_label
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.identities import caches_grants, data_grants
from gpu_tenancy.model.plan.needs import there
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.source import Source
from gpu_tenancy.model.spec import Stack

GIB = 2**30
CACHE: Data = {"cache": "800Gi", "flavor": "a100", "secret": "keys"}


def cached(bucket: str = "s3://ml-corpus/v3", dataset: Data | None = None, **cache: Any) -> Data:
    """Two teams, of which one mounts a dataset that has a cache on the A100 nodes."""
    accelerate = {key: value for key, value in {**CACHE, **cache}.items() if value is not None}
    return stack(
        teams={
            "a": team(
                gpus={"a100": {"guaranteed": 8, "limit": 32}, "h100": {"guaranteed": 8}},
                training={"train": job(flavor="a100", datasets={"corpus": "/data"})},
            ),
            "b": team(gpus={"h100": {"guaranteed": 8}}),
        },
        datasets={"corpus": {"bucket": bucket, "teams": ["a"], **(dataset or {}), "accelerate": accelerate}},
    )


def stack_of(sections: Data) -> Stack:
    return load(Source(sections))


def the_cache(sections: Data) -> CachePlan:
    made = planned(sections).caches
    assert made is not None
    (cache,) = made.caches
    return cache


def memory(pod: str) -> int:
    """Memory of a pod of Alluxio without the cache."""
    return sum(container.memory for container in getattr(caches()["alluxio"].pods, pod).values())


def test_a_cache_is_divided_between_the_nodes_that_its_flavor_always_has() -> None:
    cache = the_cache(cached())
    assert (cache.replicas, cache.size) == (4, 200 * GIB)
    cache = the_cache(cached(replicas=3))
    assert (cache.replicas, cache.size % 2**20) == (3, 0)
    assert 800 * GIB <= cache.size * 3 < 800 * GIB + 3 * 2**20


def test_fluid_is_needed_and_teams_get_a_reference_in_place_of_a_volume() -> None:
    assert there(Environment(stack_of(cached())), "fluid")
    first, second = planned(cached()).teams
    assert (first.volumes, second.cached) == ((), ())
    (reference,) = first.cached
    assert (reference.mount, reference.writable) == ("dataset://dataset-caches/corpus/data", False)
    assert planned(stack()).caches is None
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


def test_no_flavor_is_reduced_where_no_team_of_the_dataset_can_run() -> None:
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


def test_a_guarantee_of_memory_that_the_cache_has_is_refused_with_the_calculation() -> None:
    sections = cached()
    sections["teams"]["a"]["quota"] = {"a100": {"memory": {"guaranteed": "4Ti"}}}
    (problem,) = errors(sections)
    assert problem.startswith("teams.a.quota.a100.memory.guaranteed: 4Ti exceeds the ")
    assert "for caches of datasets)" in problem


def test_a_cache_on_disks_takes_no_memory_of_its_size() -> None:
    tree = Tree(stack_of(cached(medium="ssd")))
    assert tree.flavors["a100"].caches.total[MEMORY] == 4 * (memory("worker") + memory("fuse")) + memory("master")


def test_pods_prefer_the_nodes_of_the_cache_if_they_run_on_its_flavor() -> None:
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


def test_each_kind_of_bucket_is_mounted_with_the_keys_of_the_secret_and_never_a_value() -> None:
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


def test_juicefs_mounts_its_file_system_by_the_metadata_engine_of_the_secret() -> None:
    cache = the_cache(cached(runtime="juicefs", medium="ssd", filesystem="corpus-fs"))
    assert (cache.kind, cache.mount, cache.mount_name) == ("JuiceFSRuntime", "juicefs:///", "corpus-fs")
    assert cache.secret == {"metaurl": ("keys", "metaurl")}
    (reference,) = planned(cached(runtime="juicefs", medium="ssd")).teams[0].cached
    assert reference.mount == "dataset://dataset-caches/corpus"


def test_the_cache_has_the_right_on_the_folder_and_its_teams_have_none() -> None:
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


def test_an_unknown_flavor_and_a_missing_right_are_refused() -> None:
    assert errors(cached(flavor="a10"))[0].startswith("datasets.corpus.accelerate.flavor: unknown flavor 'a10'")
    (problem,) = errors(cached(secret=None))
    assert problem.startswith("datasets.corpus.accelerate.secret: has no secret, which the cache needs to read s3://")
    assert problem.endswith("create a Secret with accessKeyId and secretKey in namespace dataset-caches, and name it")


def test_a_cache_needs_nodes_that_are_always_there_and_have_a_label() -> None:
    pools = {"a100": pool("p4de.24xlarge", {"min": 0, "max": 4}), "cpu": pool("m7i.8xlarge", 3), "h100": pool()}
    sections = cached() | {"cluster": {**EXISTING, "autoscaler": True}, "pools": pools}
    assert errors(sections) == [
        (
            "datasets.corpus.accelerate.flavor: a100 has no nodes: flavor a100 always has 0; raise"
            " pools.a100.nodes.min to 1, or use another flavor"
        )
    ]
    assert errors(cached(flavor="cpu", cache="100Gi")) == [
        (
            "datasets.corpus.accelerate.flavor: cpu has no node labels of its own, by which flavor cpu could place the"
            " cache; add a label under pools.cpu.labels"
        )
    ]


def test_a_name_that_is_too_long_for_the_label_of_the_nodes_is_refused() -> None:
    sections = cached()
    for length, accepted in ((36, True), (37, False)):
        sections["datasets"] = {"c" * length: sections["datasets"].popitem()[1]}
        sections["teams"]["a"]["training"] = {}
        assert (errors(sections) == []) is accepted
    (problem,) = errors(sections)
    assert "at most 36 characters" in problem


def test_fluid_cannot_be_off_and_no_team_has_the_namespace_of_the_caches() -> None:
    (problem,) = errors(cached() | {"operators": {"fluid": "off"}})
    assert problem.startswith("operators.fluid: off is not possible because the stack needs the operator: it makes the")
    sections = cached()
    sections["teams"]["dataset-caches"] = team()
    assert errors(sections)[0].startswith("teams.dataset-caches: dataset-caches is a reserved namespace")


CREATED: Data = EKS | {
    "subnets": dict.fromkeys(("eu-central-1a", "eu-central-1b"), "subnet-0123456789abcdef0"),
    "create": {
        "version": "1.35",
        "admins": ["arn:aws:iam::111122223333:role/deploy"],
        "system": {"machine": "m7i.4xlarge", "nodes": {"min": 2, "max": 3}},
    },
}


def created(**cache: Any) -> Data:
    """The teams and dataset of `cached` in a cluster that is created."""
    return cached(medium="ssd", **cache) | {"cluster": CREATED}


def test_a_cache_on_disks_fits_the_disks_of_nodes_that_are_created() -> None:
    assert errors(created(cache="20Ti")) == []
    (problem,) = errors(created(cache="40Ti"))
    assert problem.startswith("datasets.corpus.accelerate.cache: 40Ti needs 10Ti on each node, but those of pool a100")
    assert problem.endswith("lower it, or use more replicas")
    # JuiceFS has a folder on the boot disk.
    (problem,) = errors(created(cache="1Ti", runtime="juicefs"))
    assert problem == (
        "datasets.corpus.accelerate.cache: 1Ti needs 256Gi on each node, but those of pool a100 have 200Gi; lower it,"
        " or raise pools.a100.disk.size"
    )


def test_the_pods_of_caches_have_a_cloud_identity_of_their_own_where_the_cluster_is_created() -> None:
    def owners(sections: Data) -> dict[str, tuple[str, ...]]:
        return {identity.team: identity.accounts for identity in planned(sections).cluster.identities}

    assert owners(created(runtime="juicefs", cache="400Gi")) == {"dataset-caches": ("default",)}
    assert owners(created()) == {}
    assert owners(cached(runtime="juicefs", medium="ssd")) == {}
