"""Everything that the stacks render has its provider: made here, the cloud's own, or declared by the stack."""

import json
from collections.abc import Mapping
from typing import Final

import pytest
from builders import Data, errors, server, stack, team
from rendered_stacks import stack_of_repository

from gpu_tenancy.engine.recording import Registration
from gpu_tenancy.model.catalogue.operators import operators
from gpu_tenancy.model.catalogue.preflight import needs
from gpu_tenancy.model.checks.providers import places
from gpu_tenancy.model.plan.needs import provider_of
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.project import stack_names
from gpu_tenancy.model.spec.clouds.base import Provided

STACKS: Final = stack_names()
ALONE: Final = {
    "ClusterRole", "ClusterRoleBinding", "ConfigMap", "DaemonSet", "Deployment", "FlowSchema", "Job", "LimitRange",
    "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "Namespace",
    "PodDisruptionBudget", "PriorityClass", "PriorityLevelConfiguration", "ResourceQuota", "Role", "RoleBinding",
    "Service", "ServiceAccount",
    "StorageClass", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
}  # fmt: skip
"""Kinds that the API server and its controllers serve alone."""
SERVED: Final = {
    group: name
    for name, operator in operators().items()
    for chart in operator.charts.values()
    for group in chart.serves
}
"""The operator of an API group, whose presence another check demands."""
OF_CLOUD: Final[Mapping[str, set[str]]] = {"gcp": {"GKENetworkParamSet", "Network"}}
"""Kinds that a cloud's own controllers serve in each of its clusters."""


def registrations(name: str) -> tuple[Registration, ...]:
    return stack_of_repository(name).rendered.registrations


def test_the_names_of_the_needs_are_the_values_of_the_key() -> None:
    # pyrefly: ignore[missing-attribute]
    assert list(needs()) == list(Provided.__args__)


@pytest.mark.parametrize("name", STACKS)
def test_each_rendered_kind_has_a_provider(name: str) -> None:
    preview = stack_of_repository(name)
    known = {kind for need in needs().values() for kind in need.kinds}
    of_cloud = OF_CLOUD.get(preview.stack.cluster.cloud, set[str]())
    for item in preview.objects:
        group = str(item.manifest["apiVersion"]).rpartition("/")[0]
        if operator := SERVED.get(group):
            assert preview.stack.operators.of(operator).install != "off", operator
        else:
            assert item.kind in known | of_cloud | ALONE


@pytest.mark.parametrize("name", STACKS)
def test_provided_needs_are_registered(name: str) -> None:
    """The table says what provides a need in a cluster that is created here; the program must really make it."""
    preview = stack_of_repository(name)
    cluster = preview.stack.cluster
    if cluster.creation is None:
        pytest.skip("the stack creates no cluster")
    tree = Tree(preview.stack)
    inputs = [(one.type, json.dumps(one.inputs, default=str)) for one in registrations(name)]
    for title, need in needs().items():
        made = need.made.get(cluster.cloud)
        if made is None or next(places(tree, title), None) is None:
            continue
        providers = [text for type_, text in inputs if type_ == made.type]
        assert any(all(part in text for part in made.inputs) for text in providers), (title, made)


def with_server(**cluster: object) -> Data:
    teams = {"a": team(gpus={"h100": {"guaranteed": 8}}, serving={"s": server(replicas={"min": 1, "max": 2})})}
    return stack(cluster={"cloud": "existing", "provides": [], **cluster}, teams=teams)


def test_a_need_without_a_provider_is_an_error_with_place_and_fix() -> None:
    enforcing, scaling = errors(with_server())
    assert enforcing == (
        "cluster.provides: does not include networkPolicies, which NetworkPolicies of the teams' namespaces need"
        " (teams.a): without a CNI plugin that enforces NetworkPolicies, such as Calico or Cilium, they are accepted"
        " but not enforced; add networkPolicies if the cluster has it"
    )
    assert scaling == (
        "cluster.provides: does not include resourceMetrics, which autoscalers on CPU utilization need"
        " (teams.a.serving.s): without metrics-server, which serves the API metrics.k8s.io, they never scale; add"
        " resourceMetrics if the cluster has it"
    )


def test_a_declared_need_is_provided() -> None:
    assert errors(with_server(provides=["networkPolicies", "resourceMetrics"])) == []


@pytest.mark.parametrize(
    ("sections", "need"),
    [
        ({"datasets": {"d": "s3://bucket"}}, "s3Volumes"),
        ({"datasets": {"d": "gs://bucket"}}, "gcsVolumes"),
        ({"datasets": {"d": "az://account/container"}}, "blobVolumes"),
        ({"teams": {"a": team(storage={"home": {"size": "1Ti"}})}}, "defaultStorageClass"),
    ],
)
def test_volumes_need_their_driver_or_class(sections: Data, need: str) -> None:
    cluster = {"cloud": "existing", "provides": ["networkPolicies"]}
    (problem,) = errors(stack(cluster=cluster, **sections))
    assert problem.startswith(f"cluster.provides: does not include {need}, ")


def test_an_unknown_need_is_refused() -> None:
    (problem,) = errors(with_server(provides=["networkPolicies", "resourceMetrics", "networkPolicy"]))
    assert "'networkPolicy'" in problem
    assert "networkPolicies" in problem


@pytest.mark.parametrize("name", STACKS)
def test_the_report_of_a_stack_could_name_each_provider(name: str) -> None:
    cluster = stack_of_repository(name).stack.cluster
    for title, need in needs().items():
        provider = provider_of(stack_of_repository(name).stack, need)
        if cluster.cloud == "existing":
            assert provider is None
        elif cluster.creation is not None and cluster.cloud in need.made:
            assert provider == need.made[cluster.cloud].by, title
