"""Fluid's objects of caches of datasets, and the pods that mount them."""

from typing import Any, cast

import pytest
from builders import Data, job, server, stack, team
from components_builders import Program, tenancy

from gpu_tenancy.engine.objects import waves

MOUNTED: Data = {"datasets": {"corpus": "/data/corpus"}, "flavor": "h100"}
KINDS: dict[str, Data] = {
    "Deployment": {"serving": {"w": server(**MOUNTED)}},
    "Job": {"training": {"w": job(**MOUNTED)}},
    "TrainJob": {"training": {"w": job(framework="pytorch", workers=2, **MOUNTED)}},
    "RayJob": {"training": {"w": job(framework="ray", command=["python", "t.py"], **MOUNTED)}},
    "LeaderWorkerSet": {"training": {"w": job(framework="leader-worker", workers=2, **MOUNTED)}},
    "JobSet": {"training": {"w": job(framework="jobset", roles={"worker": {"pods": 2}}, **MOUNTED)}},
}


def made(workloads: Data | None = None, dataset: Data | None = None, **cache: Any) -> Program:
    accelerate = {"cache": "100Gi", "flavor": "h100", "secret": "keys", **cache}
    owner = team(gpus={"h100": {"guaranteed": 8}}, **(workloads or {}))
    datasets = {"corpus": {"bucket": "s3://ml-corpus/v3", **(dataset or {}), "accelerate": accelerate}}
    return tenancy(stack(teams={"a": owner}, datasets=datasets))


def specs_of_pods(value: Any) -> list[Any]:
    """The pod specs in an object."""
    if isinstance(value, dict):
        entries = cast("Data", value)
        inner = [spec for part in entries.values() for spec in specs_of_pods(part)]
        return [entries, *inner] if "containers" in entries else inner
    parts = cast("list[Any]", value) if isinstance(value, list) else []
    return [spec for part in parts for spec in specs_of_pods(part)]


@pytest.mark.parametrize("kind", KINDS)
def test_pods_of_every_kind_prefer_the_nodes_of_the_cache_and_see_mounts_that_are_repaired(kind: str) -> None:
    specs = specs_of_pods(made(KINDS[kind]).only(kind, "w").manifest)
    # The head of a Ray cluster has no GPU, so it runs on other nodes.
    with_gpus = [spec for spec in specs if kind != "RayJob" or "nvidia.com/gpu.product" in spec["nodeSelector"]]
    assert with_gpus
    for spec in with_gpus:
        assert_near_the_cache(spec)


def assert_near_the_cache(spec: Any) -> None:
    affinity = spec["affinity"]["nodeAffinity"]
    (preferred,) = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    assert preferred["preference"]["matchExpressions"] == [
        {"key": "fluid.io/s-dataset-caches-corpus", "operator": "In", "values": ["true"]}
    ]
    # Kueue selects a flavor by required affinity and by labels; a preference must not restrict it.
    assert "requiredDuringSchedulingIgnoredDuringExecution" not in affinity
    (mount,) = (mount for mount in spec["containers"][0]["volumeMounts"] if mount["mountPath"] == "/data/corpus")
    assert (mount["mountPropagation"], mount["readOnly"]) == ("HostToContainer", True)
    (volume,) = (volume for volume in spec["volumes"] if volume["name"] == mount["name"])
    assert volume["persistentVolumeClaim"]["claimName"] == "corpus"


def test_fluid_makes_the_volume_and_the_claim_of_a_team_from_its_reference() -> None:
    program = made()
    assert program.every("PersistentVolume") == program.every("PersistentVolumeClaim") == []
    spec: Any = program.only("Dataset", "corpus", "a").manifest["spec"]
    assert spec == {
        "mounts": [{"mountPoint": "dataset://dataset-caches/corpus/data", "name": "corpus"}],
        "accessModes": ["ReadOnlyMany"],
    }


def test_the_cache_is_in_a_namespace_of_no_team_that_only_its_own_pods_reach() -> None:
    program = made()
    labels: Any = program.only("Namespace", "dataset-caches").manifest["metadata"]
    assert labels["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    # The label by which Kueue and the guards know the namespaces of teams.
    assert "app.kubernetes.io/managed-by" not in labels["labels"]
    policy: Any = program.only("NetworkPolicy", "allow-own-pods", "dataset-caches").manifest["spec"]
    deny: Any = program.only("NetworkPolicy", "default-deny", "dataset-caches").manifest["spec"]
    assert deny == {"podSelector": {}, "policyTypes": ["Ingress"]}
    assert policy["ingress"] == [{"from": [{"podSelector": {}}]}]
    quota: Any = program.only("ResourceQuota", "", "dataset-caches").manifest["spec"]
    assert quota["scopeSelector"]["matchExpressions"][0]["values"] == [
        "system-node-critical",
        "system-cluster-critical",
    ]


def test_the_dataset_is_placed_on_the_nodes_of_the_flavor_and_its_claims_have_the_size_of_the_stack() -> None:
    dataset: Any = made().only("Dataset", "corpus", "dataset-caches").manifest
    assert dataset["metadata"]["annotations"]["pvc.fluid.io/resources.requests.storage"] == "1Gi"
    (term,) = dataset["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [
        {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["NVIDIA-H100-80GB-HBM3"]}
    ]
    assert dataset["spec"]["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert dataset["spec"]["placement"] == "Shared"


def test_a_secret_is_named_and_the_mount_is_not_at_the_root_whose_options_fluid_writes_into_a_configmap() -> None:
    dataset: Any = made().only("Dataset", "corpus", "dataset-caches").manifest
    (mount,) = dataset["spec"]["mounts"]
    assert mount["path"] == "/data"
    assert mount["encryptOptions"] == [
        {"name": "aws.accessKeyId", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "accessKeyId"}}},
        {"name": "aws.secretKey", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "secretKey"}}},
    ]
    assert made().every("Secret") == []


def test_each_pod_of_the_runtime_requests_what_the_quotas_count() -> None:
    spec = made().spec("AlluxioRuntime")
    assert spec["replicas"] == 2
    assert spec["worker"]["resources"]["requests"] == {"cpu": "2", "memory": "56Gi"}
    for part in ("master", "jobMaster", "worker", "jobWorker", "fuse"):
        assert spec[part]["resources"]["requests"] == spec[part]["resources"]["limits"]
        assert any(option.startswith("-Xmx") for option in spec[part]["jvmOptions"])
    assert {spec[part]["networkMode"] for part in ("master", "worker", "fuse")} == {"ContainerNetwork"}
    (level,) = spec["tieredstore"]["levels"]
    assert (level["mediumtype"], level["volumeType"], level["quota"]) == ("MEM", "emptyDir", "50Gi")
    assert "properties" not in spec


def test_each_node_has_a_copy_of_weights_where_asked() -> None:
    program = made(copies=2, warm=True)
    assert program.spec("AlluxioRuntime")["data"] == {"replicas": 2}
    assert program.spec("DataLoad")["target"] == [{"path": "/data", "replicas": 2}]


def test_what_teams_write_reaches_the_bucket() -> None:
    program = made(dataset={"writable": True})
    assert program.spec("AlluxioRuntime")["properties"] == {"alluxio.user.file.writetype.default": "CACHE_THROUGH"}
    for namespace in ("a", "dataset-caches"):
        spec: Any = program.only("Dataset", "corpus", namespace).manifest["spec"]
        assert spec["accessModes"] == ["ReadWriteMany"]


def test_workers_and_mounts_of_juicefs_share_a_folder_of_the_node() -> None:
    spec = made(runtime="juicefs", medium="ssd").spec("JuiceFSRuntime")
    (level,) = spec["tieredstore"]["levels"]
    assert (level["volumeType"], level["path"]) == ("hostPath", "/var/lib/juicefs-cache/corpus")
    assert "master" not in spec
    assert "jvmOptions" not in spec["worker"]


def test_a_warm_cache_is_loaded_once_on_the_same_nodes() -> None:
    assert made().every("DataLoad") == []
    spec = made(warm=True).spec("DataLoad")
    assert (spec["dataset"], spec["policy"]) == ({"name": "corpus", "namespace": "dataset-caches"}, "Once")
    assert spec["target"] == [{"path": "/data", "replicas": 1}]
    assert spec["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    assert spec["tolerations"]


def test_teams_refer_to_a_cache_that_exists_and_without_caches_there_is_no_namespace() -> None:
    program = made()
    order = [f"{one.kind} {one.namespace}" for wave in waves(program.objects) for one in wave]
    places = [order.index(name) for name in ("Dataset dataset-caches", "AlluxioRuntime dataset-caches", "Dataset a")]
    assert places == sorted(places)
    plain = tenancy(stack(datasets={"corpus": "s3://ml-corpus/v3"}))
    assert plain.every("Namespace", "dataset-caches") == []
