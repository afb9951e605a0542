"""Objects of a MultiKueue manager and of its worker, as their previews have them."""

from typing import Any, cast

import pytest
from builders import EXISTING, Data, job, pool, team
from cli_builders import Project

from gpu_tenancy.engine.objects import KubernetesObject
from gpu_tenancy.engine.project import preview

CHECK = "gpu-tenancy-multikueue"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    made = Project.at(tmp_path_factory.mktemp("multikueue") / "project")
    pools = {"h100": pool(), "cpu": pool("m7i.8xlarge", 1, labels={"node-type": "cpu"})}
    teams = {name: team(gpus={"h100": {"guaranteed": 4, "limit": 16}}) for name in ("a", "b")}
    running: Data = {"operators": {"trainer": "installed"}, "cluster": dict(EXISTING)}
    made.write("west", {**running, "pools": pools, "teams": teams, "multikueue": {"manager": "hub"}})
    named = {"name": "west", "stack": "west", "secret": "west-kubeconfig"}
    jobs = {"plain": job(gpus=8), **{one: job(gpus=8, framework=one) for one in ("pytorch", "jobset")}}
    hub = {"teams": {"a": {"training": jobs}}, "multikueue": {"workers": [named]}}
    made.write("hub", {**running, **hub})
    return made


def objects(project: Project, stack: str, kind: str) -> list[KubernetesObject]:
    return [one for one in preview(stack, project.folder).objects if one.kind == kind]


def spec(one: KubernetesObject) -> Any:
    return cast("Any", one.manifest)["spec"]


@pytest.mark.slow
def test_a_manager_refers_to_the_secret_of_a_worker_and_has_none(project: Project) -> None:
    (cluster,) = objects(project, "hub", "MultiKueueCluster")
    assert cluster.name == "west"
    assert spec(cluster)["clusterSource"]["kubeConfig"] == {"locationType": "Secret", "location": "west-kubeconfig"}
    (config,) = objects(project, "hub", "MultiKueueConfig")
    assert spec(config) == {"clusters": ["west"]}
    (check,) = objects(project, "hub", "AdmissionCheck")
    assert spec(check)["controllerName"] == "kueue.x-k8s.io/multikueue"
    assert spec(check)["parameters"]["name"] == config.name
    assert objects(project, "hub", "Secret") == []
    for queue in objects(project, "hub", "ClusterQueue"):
        assert spec(queue)["admissionChecksStrategy"] == {"admissionChecks": [{"name": CHECK}]}
    for queue in objects(project, "west", "ClusterQueue"):
        assert "admissionChecksStrategy" not in spec(queue)


def test_jobs_of_a_manager_are_managed_by_multikueue(project: Project) -> None:
    for kind in ("Job", "TrainJob", "JobSet"):
        (found,) = objects(project, "hub", kind)
        assert spec(found)["managedBy"] == "kueue.x-k8s.io/multikueue", kind


def test_a_train_job_of_a_manager_has_trainers_own_runtime(project: Project) -> None:
    (torch,) = objects(project, "hub", "TrainJob")
    assert spec(torch)["runtimeRef"] == {"name": "torch-distributed", "kind": "ClusterTrainingRuntime"}
    assert objects(project, "hub", "TrainingRuntime") == []


@pytest.mark.slow
def test_namespaces_queues_and_flavors_of_both_agree(project: Project) -> None:
    for kind in ("Namespace", "LocalQueue", "WorkloadPriorityClass"):
        names = [{(one.namespace, one.name) for one in objects(project, stack, kind)} for stack in ("hub", "west")]
        assert names[0] == names[1], kind
    labels = [
        {one.name: spec(one).get("nodeLabels") for one in objects(project, stack, "ResourceFlavor")}
        for stack in ("hub", "west")
    ]
    assert labels[0] == labels[1]


@pytest.mark.slow
def test_a_manager_writes_in_the_namespaces_of_teams_only(project: Project) -> None:
    (bound,) = objects(project, "west", "ClusterRoleBinding")
    assert cast("Any", bound.manifest)["roleRef"]["name"] == CHECK
    roles = {one.name: cast("Any", one.manifest)["rules"] for one in objects(project, "west", "ClusterRole")}
    assert {verb for rule in roles[CHECK] for verb in rule["verbs"]} == {"get", "list", "watch"}
    writers = objects(project, "west", "RoleBinding")
    assert {(one.namespace, one.name) for one in writers} == {("a", CHECK), ("b", CHECK)}
    assert {cast("Any", one.manifest)["roleRef"]["name"] for one in writers} == {f"{CHECK}-team"}
    (account,) = [one for one in objects(project, "west", "ServiceAccount") if one.namespace == "kueue-system"]
    assert cast("Any", account.manifest)["automountServiceAccountToken"] is False
    assert objects(project, "hub", "RoleBinding") == []
