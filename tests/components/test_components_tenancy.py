"""The whole tenancy: objects, people, egress, and managers and workers of MultiKueue."""

import json
import re
from collections.abc import Mapping
from functools import cache
from ipaddress import ip_network
from typing import Any, Final, TypeAlias, cast

import pytest
from builders import EXISTING, GPU, Data, job, pool, server, stack, team
from cli_builders import Project
from components_builders import TENANCY, Program, pod_specs, program, tenancy, texts
from repository import ROOT

from gpu_tenancy.base.quantity import parse_bytes
from gpu_tenancy.engine.objects import KubernetesObject, waves
from gpu_tenancy.engine.project import preview
from gpu_tenancy.model.catalogue.clouds import clouds
from gpu_tenancy.model.plan.guards import UNCOUNTED
from gpu_tenancy.model.plan.notebooks import NOTEBOOK_STOPS
from gpu_tenancy.model.source import read_file

LOCAL = ROOT / "stacks" / "Pulumi.local.yaml"
WORKLOADS = {"Deployment", "Job", "JobSet", "TrainJob"}


@cache
def local() -> Program:
    return tenancy(read_file(LOCAL).sections)


def body(one: KubernetesObject) -> Any:
    return cast("Any", one.manifest)


def workloads() -> list[KubernetesObject]:
    return [resource for resource in local().objects if resource.kind in WORKLOADS]


def test_the_same_stack_gives_the_same_bytes() -> None:
    second = program(read_file(LOCAL).sections, TENANCY)
    assert repr([one.manifest for one in second.objects]) == repr([one.manifest for one in local().objects])


def test_everything_in_a_namespace_comes_after_it() -> None:
    namespaces = {resource.name: resource.urn for resource in local().every("Namespace")}
    late = [
        resource.urn
        for resource in local().objects
        if resource.namespace and namespaces[resource.namespace] not in resource.depends_on
    ]
    assert late == []


@pytest.mark.parametrize("kind", ["ResourceQuota", "LimitRange", "NetworkPolicy", "LocalQueue", "ServiceAccount"])
def test_workloads_come_after_their_namespaces_bounds(kind: str) -> None:
    for resource in workloads():
        # A robot's account is of no workload.
        bounds = local().every(kind, namespace=resource.namespace)
        before = {bound.urn for bound in bounds if "robot" not in bound.urn.rpartition("::")[2]}
        assert before
        assert before <= set(resource.depends_on), resource.urn


@pytest.mark.parametrize("kind", ["PriorityClass", "WorkloadPriorityClass", "ClusterQueue", "Queue", "ResourceFlavor"])
def test_workloads_come_after_what_all_teams_share(kind: str) -> None:
    order = {resource.urn: index for index, wave in enumerate(waves(local().objects)) for resource in wave}
    shared = [order[resource.urn] for resource in local().every(kind)]
    assert shared
    assert max(shared) < min(order[resource.urn] for resource in workloads())


def test_a_team_waits_for_its_own_queue_and_for_no_other_teams() -> None:
    queues = {resource.name: resource.urn for resource in local().every("ClusterQueue")}
    for resource in workloads():
        assert queues[resource.namespace] in resource.depends_on
        assert not {urn for name, urn in queues.items() if name != resource.namespace} & set(resource.depends_on)


def test_cohorts_follow_their_parent_and_queues_their_cohort() -> None:
    order = {resource.urn: index for index, wave in enumerate(waves(local().objects)) for resource in wave}
    flavors = [order[resource.urn] for resource in local().every("ResourceFlavor")]
    for resource in (*local().every("Cohort"), *local().every("ClusterQueue")):
        above = body(resource)["spec"].get("parentName") or body(resource)["spec"].get("cohortName")
        if above:
            assert order[local().only("Cohort", above).urn] < order[resource.urn]
        assert max(flavors) < order[resource.urn]


def test_pods_with_gpus_tolerate_their_taint() -> None:
    specs = [spec for resource in workloads() for spec in pod_specs(resource)]
    on_gpus = [spec for spec in specs if GPU in spec["containers"][0]["resources"]["requests"]]
    assert len(on_gpus) >= 3
    for spec in on_gpus:
        assert (GPU, "NoSchedule") in {(toleration["key"], toleration["effect"]) for toleration in spec["tolerations"]}


def test_pods_have_no_token_and_no_rights() -> None:
    for resource in workloads():
        for spec in pod_specs(resource):
            assert spec["automountServiceAccountToken"] is False
            assert spec["serviceAccountName"] == "workload"
            assert spec["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_workloads_carry_queue_and_priority_for_kueue() -> None:
    for resource in workloads():
        if resource.api_version.startswith("batch.volcano.sh"):
            assert "kueue.x-k8s.io/queue-name" not in repr(resource.manifest), "one GPU is promised by one scheduler"
            continue
        labels = body(resource)["metadata"]["labels"]
        assert labels["kueue.x-k8s.io/queue-name"] == resource.namespace
        assert labels["kueue.x-k8s.io/priority-class"] in {"ml-critical", "ml-high", "ml-low"}
        if resource.kind == "Deployment":  # admitted pod by pod
            pods = body(resource)["spec"]["template"]["metadata"]["labels"]
            assert pods["kueue.x-k8s.io/queue-name"] == resource.namespace


@pytest.mark.parametrize("workload", ["Job nightly", "Job gang", "Deployment rank-server", "TrainJob finetune"])
def test_pods_of_a_group_share_a_quarter_of_their_memory(workload: str) -> None:
    kind, name = workload.split()
    (registration,) = [resource for resource in local().objects if (resource.kind, resource.name) == (kind, name)]
    text = json.dumps(registration.manifest)
    assert '"mountPath": "/dev/shm"' in text
    (size,) = set(re.findall(r'"medium": "Memory", "sizeLimit": "(\w+)"', text))
    (memory,) = set(re.findall(r'"memory": "(\w+)"', text))
    assert parse_bytes(size) == parse_bytes(memory) // 4


def test_a_team_with_a_server_has_five_network_policies() -> None:
    assert len(local().every("NetworkPolicy", namespace="ml-serving")) == 5


def test_egress_to_the_internet_is_closed_by_default() -> None:
    assert "allow-https" not in {resource.name for resource in local().every("NetworkPolicy")}
    rendered = tenancy(stack(teams={"a": team(network={"egress": ["0.0.0.0/0"], "clients": "team"})}))
    (rule,) = rendered.spec("NetworkPolicy", "allow-https")["egress"]
    assert rule == {"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}], "ports": [{"port": 443, "protocol": "TCP"}]}


def test_the_labels_that_others_read_are_on_every_namespace() -> None:
    for resource in local().every("Namespace"):
        labels = body(resource)["metadata"]["labels"]
        assert labels["environment"] == "local"
        of_team = () if resource.name == NOTEBOOK_STOPS else ("owner", "cost-center", "gpu-tier")
        assert {*of_team, "pod-security.kubernetes.io/enforce"} <= set(labels)


def test_kueue_objects_are_v1beta2_without_admission_checks() -> None:
    kueues = [resource for resource in local().objects if resource.group == "kueue.x-k8s.io"]
    assert {resource.kind for resource in kueues} == {
        "ClusterQueue",
        "Cohort",
        "LocalQueue",
        "ResourceFlavor",
        "Topology",
        "WorkloadPriorityClass",
    }
    assert {resource.api_version for resource in kueues} == {"kueue.x-k8s.io/v1beta2"}
    keys = {text for resource in kueues for _, text in texts(resource.manifest)}
    assert keys.isdisjoint({"admissionChecks", "cohort", "kueue.x-k8s.io/v1beta1"})


def test_every_cluster_queue_names_its_namespaces() -> None:
    for resource in local().every("ClusterQueue"):
        (selector,) = body(resource)["spec"]["namespaceSelector"]["matchExpressions"]
        assert selector["values"] == [resource.name]


@pytest.mark.parametrize("name", ["dns", "team", "https"])
def test_names_of_servers_do_not_replace_network_policies(name: str) -> None:
    spec = team(gpus={"h100": {"guaranteed": 8}}, serving={name: server()}, network={"egress": ["10.0.0.0/8"]})
    rendered = tenancy(stack(teams={"a": spec}))
    assert len(rendered.every("NetworkPolicy")) == 5


def test_teams_with_similar_names_have_their_own_resources() -> None:
    gpus: Data = {"h100": {"guaranteed": 2}}
    teams = {"ml": team(gpus=gpus, serving={"a-b": server()}), "ml-a": team(gpus=gpus, serving={"b": server()})}
    rendered = tenancy(stack(teams=teams))
    assert len(rendered.every("Deployment")) == 2


def test_a_node_label_reaches_every_kind_of_pod_as_it_is_written() -> None:
    label = {"gpu_pool": "west"}
    sections = stack(
        pools={"h100": pool(labels=label)},
        teams={
            "a": team(
                gpus={"h100": {"guaranteed": 4}},
                gangs={"h100": {"guaranteed": 4}},
                serving={"s": server()},
                training={"j": job(), "g": job(scheduler="volcano", workers=2), "t": job(framework="pytorch")},
            )
        },
    )
    for resource in tenancy(sections).objects:
        for spec in pod_specs(resource):
            assert spec["nodeSelector"].items() >= label.items(), resource.urn


def test_jobs_are_guarded_where_containers_get_0_gpus() -> None:
    spaces = {each.name: body(each)["metadata"].get("annotations", {}) for each in local().every("Namespace")}
    assert local().every("ValidatingAdmissionPolicy", "gpu-tenancy-gpu-requests") != []
    assert [name for name, facts in spaces.items() if "guards.gpu-tenancy.dev/default-gpus" in facts] == ["ml-research"]
    unbound = tenancy(stack(teams={"a": team(gpus={"h100": {"guaranteed": 8}})}))
    assert unbound.every("ValidatingAdmissionPolicy", "gpu-tenancy-gpu-requests") == []
    assert unbound.every("ValidatingAdmissionPolicyBinding", "gpu-tenancy-gpu-requests") == []


# Bindings and roles as the program declares them


EVERYBODY = {"system:authenticated", "system:unauthenticated", "system:serviceaccounts"}


def made(**sections: Any) -> Program:
    members: Data = {"leads": ["group:heads"], "researchers": ["user:ann"], "viewers": ["serviceaccount:ci/robot"]}
    teams = {"a": team(gpus={"h100": {"guaranteed": 8}}, members=members, workloadSecrets=["s3"]), "b": team()}
    people: Data = {"admins": ["group:platform"], "auditors": ["group:audit"]}
    return tenancy(stack(**{"teams": teams, "people": people, **sections}))


def test_every_bound_role_is_made_and_nobody_binds_everybody() -> None:
    program = made()
    roles = {one.name for one in program.every("ClusterRole")} | {"cluster-admin"}
    bindings: list[Any] = [
        one.manifest for kind in ("RoleBinding", "ClusterRoleBinding") for one in program.every(kind)
    ]
    assert {one["roleRef"]["name"] for one in bindings} == roles
    assert not {subject["name"] for one in bindings for subject in one["subjects"]} & EVERYBODY


RULES = {"accounts", "expose", "priority", "secrets", "tokens", "queue-objects"}


def test_rules_about_people_deny_for_every_action_of_guards() -> None:
    for action in ("warn", "off"):
        program = made(guards=action)
        for rule in RULES:
            spec = program.spec("ValidatingAdmissionPolicyBinding", f"gpu-tenancy-{rule}")
            assert spec["validationActions"] == ["Deny"], rule


def test_without_members_there_are_no_rules_about_people() -> None:
    program = made(teams={"a": team()})
    names = {one.name.removeprefix("gpu-tenancy-") for one in program.every("ValidatingAdmissionPolicy")}
    assert names & RULES == {"expose", "queue-objects"}
    spec = program.spec("ValidatingAdmissionPolicyBinding", "gpu-tenancy-queue-objects")
    assert spec["validationActions"] == ["Warn", "Audit"]


# Egress of teams' pods to link-local addresses of nodes, on each cloud's stack


Peer: TypeAlias = tuple[str, int, str]
POD_IDENTITY: Final = {("169.254.170.23/32", 80, "TCP"), ("fd00:ec2::23/128", 80, "TCP")}
METADATA: Final = {
    ("169.254.169.254/32", 80, "TCP"),
    ("169.254.169.254/32", 8080, "TCP"),
    ("169.254.169.252/32", 987, "TCP"),
    ("169.254.169.252/32", 988, "TCP"),
}


def dns(*cidrs: str) -> set[Peer]:
    return {(cidr, 53, protocol) for cidr in cidrs for protocol in ("UDP", "TCP")}


@cache
def of_stack(name: str) -> Program:
    return tenancy(read_file(ROOT / "stacks" / f"Pulumi.{name}.yaml").sections)


def link_local(program: Program, policy: str, namespace: str) -> set[Peer]:
    """Addresses, ports and protocols that a policy of a namespace allows; none if the namespace has no such policy."""
    return {
        (peer["ipBlock"]["cidr"], port["port"], port["protocol"])
        for resource in program.every("NetworkPolicy", policy, namespace)
        for rule in body(resource)["spec"]["egress"]
        for peer in rule["to"]
        if "ipBlock" in peer
        for port in rule["ports"]
    }


@pytest.mark.parametrize(
    ("name", "identity", "names"),
    [
        ("prod-aws", POD_IDENTITY, dns("169.254.20.10/32")),
        ("prod-gcp", METADATA, dns("169.254.169.254/32", "169.254.20.10/32")),
        ("prod-azure", set[Peer](), dns("169.254.10.0/24")),
        ("local", set[Peer](), set[Peer]()),
    ],
)
def test_pods_reach_only_credentials_and_dns_of_their_node(name: str, identity: set[Peer], names: set[Peer]) -> None:
    namespaces = {resource.name for resource in of_stack(name).every("Namespace")} - {UNCOUNTED.namespace}
    assert namespaces
    for namespace in namespaces:
        assert link_local(of_stack(name), "allow-identity", namespace) == identity
        assert link_local(of_stack(name), "allow-dns", namespace) == names


@pytest.mark.parametrize(("provider", "identity"), [("gcp", set[Peer]()), ("aws", POD_IDENTITY)])
def test_nodes_of_others_give_no_credentials_to_teams(provider: str, identity: set[Peer]) -> None:
    cluster: Data = {**EXISTING, "provider": provider}
    cluster["provides"] = [need for need in cluster["provides"] if need != "resourceMetrics" or provider == "aws"]
    sections = stack(cluster=cluster, pools={"cpu": {"cpu": 8, "memory": "32Gi", "nodes": 1}}, teams={"a": team()})
    assert link_local(tenancy(sections), "allow-identity", "a") == identity


@pytest.mark.parametrize("cloud", clouds())
def test_addresses_of_nodes_are_link_local(cloud: str) -> None:
    for endpoint in clouds()[cloud].node_endpoints:
        for cidr in endpoint.cidrs:
            # fd00:ec2::/32 is EC2's own range for such addresses.
            assert ip_network(cidr).is_link_local or cidr.startswith("fd00:ec2::"), cidr


# Objects of a MultiKueue manager and of its worker, as their previews have them


CHECK = "gpu-tenancy-multikueue"
Previews: TypeAlias = Mapping[str, tuple[KubernetesObject, ...]]


@pytest.fixture(scope="module")
def previews(tmp_path_factory: pytest.TempPathFactory) -> Previews:
    """The objects of both stacks."""
    made = Project.at(tmp_path_factory.mktemp("multikueue") / "project")
    pools = {"h100": pool(), "cpu": pool("m7i.8xlarge", 1, labels={"node-type": "cpu"})}
    teams = {name: team(gpus={"h100": {"guaranteed": 4, "limit": 16}}) for name in ("a", "b")}
    running: Data = {"operators": {"trainer": "installed"}, "cluster": dict(EXISTING)}
    made.write("west", {**running, "pools": pools, "teams": teams, "multikueue": {"manager": "hub"}})
    named = {"name": "west", "stack": "west", "secret": "west-kubeconfig"}
    jobs = {"plain": job(gpus=8), **{one: job(gpus=8, framework=one) for one in ("pytorch", "jobset")}}
    hub = {"teams": {"a": {"training": jobs}}, "multikueue": {"workers": [named]}}
    made.write("hub", {**running, **hub})
    return {name: preview(name, made.folder).objects for name in ("hub", "west")}


def objects(previews: Previews, stack: str, kind: str) -> list[KubernetesObject]:
    return [one for one in previews[stack] if one.kind == kind]


def spec(one: KubernetesObject) -> Any:
    return body(one)["spec"]


@pytest.mark.slow
def test_a_manager_refers_to_the_secret_of_a_worker_and_has_none(previews: Previews) -> None:
    (cluster,) = objects(previews, "hub", "MultiKueueCluster")
    assert cluster.name == "west"
    assert spec(cluster)["clusterSource"]["kubeConfig"] == {"locationType": "Secret", "location": "west-kubeconfig"}
    (config,) = objects(previews, "hub", "MultiKueueConfig")
    assert spec(config) == {"clusters": ["west"]}
    (check,) = objects(previews, "hub", "AdmissionCheck")
    assert spec(check)["controllerName"] == "kueue.x-k8s.io/multikueue"
    assert spec(check)["parameters"]["name"] == config.name
    assert objects(previews, "hub", "Secret") == []
    for queue in objects(previews, "hub", "ClusterQueue"):
        assert spec(queue)["admissionChecksStrategy"] == {"admissionChecks": [{"name": CHECK}]}
    for queue in objects(previews, "west", "ClusterQueue"):
        assert "admissionChecksStrategy" not in spec(queue)


def test_jobs_of_a_manager_are_managed_by_multikueue(previews: Previews) -> None:
    for kind in ("Job", "TrainJob", "JobSet"):
        (found,) = objects(previews, "hub", kind)
        assert spec(found)["managedBy"] == "kueue.x-k8s.io/multikueue", kind


def test_a_train_job_of_a_manager_has_trainers_own_runtime(previews: Previews) -> None:
    (torch,) = objects(previews, "hub", "TrainJob")
    assert spec(torch)["runtimeRef"] == {"name": "torch-distributed", "kind": "ClusterTrainingRuntime"}
    assert objects(previews, "hub", "TrainingRuntime") == []


@pytest.mark.slow
def test_namespaces_queues_and_flavors_of_both_agree(previews: Previews) -> None:
    for kind in ("Namespace", "LocalQueue", "WorkloadPriorityClass"):
        names = [{(one.namespace, one.name) for one in objects(previews, stack, kind)} for stack in ("hub", "west")]
        assert names[0] == names[1], kind
    labels = [
        {one.name: spec(one).get("nodeLabels") for one in objects(previews, stack, "ResourceFlavor")}
        for stack in ("hub", "west")
    ]
    assert labels[0] == labels[1]


@pytest.mark.slow
def test_a_manager_writes_in_the_namespaces_of_teams_only(previews: Previews) -> None:
    (bound,) = objects(previews, "west", "ClusterRoleBinding")
    assert body(bound)["roleRef"]["name"] == CHECK
    roles = {one.name: body(one)["rules"] for one in objects(previews, "west", "ClusterRole")}
    assert {verb for rule in roles[CHECK] for verb in rule["verbs"]} == {"get", "list", "watch"}
    writers = objects(previews, "west", "RoleBinding")
    assert {(one.namespace, one.name) for one in writers} == {("a", CHECK), ("b", CHECK)}
    assert {body(one)["roleRef"]["name"] for one in writers} == {f"{CHECK}-team"}
    (account,) = [one for one in objects(previews, "west", "ServiceAccount") if one.namespace == "kueue-system"]
    assert body(account)["automountServiceAccountToken"] is False
    assert objects(previews, "hub", "RoleBinding") == []
