"""Kueue's own configuration, as it follows from a stack."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from builders import Data, planned, pool, stack, team
from operators_builders import AMD_POOL, STACKS, kueue, made_here, plan_of, release, with_gangs, with_jobs

from gpu_tenancy.model.catalogue.operators import charts


def test_kueue_manages_every_kind_of_work_that_a_team_may_start() -> None:
    found = kueue(made_here())["integrations"]
    assert found["frameworks"] == ["batch/job", "pod", "deployment", "statefulset"]
    assert found["labelKeysToCopy"] == ["gpu-tenancy.dev/user"]


def test_kueue_manages_train_jobs_and_their_job_sets_where_there_are_any() -> None:
    frameworks = kueue(with_jobs(framework="pytorch"))["integrations"]["frameworks"]
    assert frameworks[-2:] == ["jobset.x-k8s.io/jobset", "trainer.kubeflow.org/trainjob"]


def test_kueue_queues_the_kinds_of_the_operators_that_are_there() -> None:
    always = kueue(made_here())["integrations"]["frameworks"]
    ray = kueue(with_jobs(framework="ray", command=["/train"]))["integrations"]["frameworks"]
    assert ray == [*always, "ray.io/rayjob", "ray.io/raycluster", "ray.io/rayservice"]
    groups = kueue(with_jobs(framework="leader-worker"))["integrations"]["frameworks"]
    assert groups == [*always, "leaderworkerset.x-k8s.io/leaderworkerset"]


def test_kueue_leaves_a_gangs_pods_to_volcano_and_is_allowed_to_find_out() -> None:
    assert kueue(with_gangs())["integrations"]["externalFrameworks"] == ["Job.v1alpha1.batch.volcano.sh"]
    assert release(with_gangs(), "kueue").reads == (("batch.volcano.sh", "jobs"),)
    assert release(made_here(), "kueue").reads == ()


@pytest.mark.parametrize("said", ["here", "installed"])
def test_kueue_leaves_the_pods_of_a_cache_to_fluid_and_is_allowed_to_find_out(said: str) -> None:
    sections = made_here(operators={"fluid": said})
    left = kueue(sections)["integrations"]["externalFrameworks"]
    assert "JuiceFSRuntime.v1alpha1.data.fluid.io" in left
    assert "DataLoad.v1alpha1.data.fluid.io" in left
    reads = release(sections, "kueue").reads
    assert {f"{resource}.{group}" for group, resource in reads} == {
        f"{kind.partition('.')[0].lower()}s.data.fluid.io" for kind in left
    }


def test_kueue_counts_a_teams_own_work_on_its_data_and_its_daemon_sets() -> None:
    left = kueue(made_here(operators={"fluid": "here"}))["integrations"]["externalFrameworks"]
    assert not [kind for kind in left if kind.startswith(("DataProcess", "DaemonSet"))]


def test_kueue_leaves_gangs_and_caches_alone_where_both_are_there() -> None:
    sections = with_gangs(operators={"fluid": "here"})
    gang, *caches = kueue(sections)["integrations"]["externalFrameworks"]
    assert gang == "Job.v1alpha1.batch.volcano.sh"
    assert len(release(sections, "kueue").reads) == 1 + len(caches)


@pytest.mark.parametrize("file", STACKS, ids=lambda f: f.stem)
def test_only_team_namespaces_hold_workloads_without_a_queue(file: Path) -> None:
    plan = plan_of(file)
    selector = kueue(with_gangs())["managedJobsNamespaceSelector"]
    for team_plan in plan.teams:
        assert _selects(
            selector, {**team_plan.namespace.labels, "kubernetes.io/metadata.name": team_plan.namespace.name}
        )
        assert all(work.queue for work in (*team_plan.servers, *team_plan.jobs))
    for name in ("kube-system", *(row.namespace for row in charts().values())):
        ours = {"app.kubernetes.io/managed-by": "gpu-tenancy"}
        assert not _selects(selector, {**ours, "kubernetes.io/metadata.name": name})
    assert not _selects(selector, {"kubernetes.io/metadata.name": "gke-managed-system"})


def _selects(selector: Data, labels: Mapping[str, str]) -> bool:
    """As a label selector of Kubernetes does, of the two ways that are used."""
    (expression,) = selector["matchExpressions"]
    assert expression["operator"] == "NotIn"
    spared = labels.get(expression["key"]) in expression["values"]
    return selector["matchLabels"].items() <= labels.items() and not spared


def test_fair_sharing_is_configured_only_for_even_fairness() -> None:
    assert "fairSharing" not in kueue(made_here())
    strategies = {"preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]}
    assert kueue(made_here(fairness="even"))["fairSharing"] == strategies


def test_kueue_exports_quota_metrics_and_does_not_evict_slow_pods() -> None:
    configuration, values = kueue(made_here()), release(made_here(), "kueue").values
    assert configuration["metrics"]["enableClusterQueueResources"] is True
    assert "waitForPodsReady" not in configuration
    assert values["controllerManager"]["featureGates"] == [{"name": "DisableWaitForPodsReady", "enabled": True}]


def test_uncovered_resources_do_not_block_admission() -> None:
    prefixes = kueue(made_here())["resources"]["excludeResourcePrefixes"]
    assert {"vpc.amazonaws.com/efa", "rdma/", "networking.gke.io.networks/", "ephemeral-storage"} <= set(prefixes)
    pools = {"cpu": pool("m7i.8xlarge", 3), "fpga": {**AMD_POOL, "gpu": "card", "resource": "rdma/card"}}
    sections = stack(pools=pools, teams={"a": team()}, operators={"kueue": "here"})
    assert "rdma/" not in kueue(sections)["resources"]["excludeResourcePrefixes"]


def test_kueues_configuration_has_no_key_that_its_api_lacks() -> None:
    # configuration_types.go of v0.19.2: an unknown key ends the manager.
    known = {
        "apiVersion", "kind", "namespace", "webhook", "leaderElection", "metrics", "health", "pprofBindAddress",
        "controller", "tls", "manageJobsWithoutQueueName", "managedJobsNamespaceSelector", "internalCertManagement",
        "waitForPodsReady", "clientConnection", "integrations", "multiKueue", "fairSharing", "admissionFairSharing",
        "resources", "featureGates", "objectRetentionPolicies", "visibilityServer",
    }  # fmt: skip
    configuration = kueue(with_gangs(fairness="even"))
    assert set(configuration) <= known
    assert set(configuration["integrations"]) <= {"frameworks", "externalFrameworks", "labelKeysToCopy"}
    assert set(configuration["fairSharing"]) == {"preemptionStrategies"}


def test_the_same_stack_gives_the_same_configuration() -> None:
    second = with_gangs(fairness="even")
    assert planned(second).operators == planned(json.loads(json.dumps(second))).operators
