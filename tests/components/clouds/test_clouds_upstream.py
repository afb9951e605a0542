"""Foreign programs: stacks on an emulator of AWS, and charts of clouds."""

import sys
from collections.abc import Callable, Generator
from copy import deepcopy
from os import environ, pathsep
from pathlib import Path
from typing import Final

import pytest
import yaml
from aws_emulator import LOGIN, Emulator, emulated
from builders import Data, stack_of
from cloud_stacks import REGION, eks_creation, eks_pool, eks_section, eks_stack, sent
from components_builders import Graph, cluster
from originals import described
from rendered_charts import of_upstream, rendered, requested, templates
from rendered_stacks import stack_of_repository
from repository import ROOT
from test_clouds_replacements import STACKS_AGAIN as STACKS

from gpu_tenancy.base.json import Json, map_at, maps_at, text_at
from gpu_tenancy.base.progress import Report
from gpu_tenancy.base.quantity import CPU, MEMORY, parse_bytes, parse_cpu
from gpu_tenancy.doctor.checks import cloud_rows
from gpu_tenancy.engine.render import Rendered
from gpu_tenancy.kube.client import Manifest
from gpu_tenancy.model.catalogue import allocatable, machines
from gpu_tenancy.model.catalogue.operators import CRITICAL, ChartValues
from gpu_tenancy.model.catalogue.releases import cloud_charts
from gpu_tenancy.model.plan.operators import ReleasePlan
from gpu_tenancy.model.project import read_stack

pytestmark = [pytest.mark.process, pytest.mark.slow]

# Operations that moto does not have; only AWS' own descriptions check them.
UNKNOWN: Final = {
    "ec2:CreatePlacementGroup",
    "eks:AssociateAccessPolicy",
    "eks:CreateAccessEntry",
    "eks:CreateAddon",
    "eks:CreatePodIdentityAssociation",
}
REFUSED: Final = ("CreateNatGateway",)  # moto does not know regional NAT gateways, and requires a subnet


@pytest.fixture(scope="module")
def server() -> Generator[str]:
    with emulated() as url:
        yield url


def everything() -> Rendered:
    """Karpenter, a bucket, file systems, secrets and a network of its own."""
    sections: Data = deepcopy(STACKS["karpenter"])
    subnets = sections["cluster"].pop("subnets")
    sections["cluster"]["create"]["zones"] = list(subnets)
    return cluster(sections).rendered


def created(url: str, region: str, rendered: Rendered) -> Emulator:
    emulator, graph = Emulator(url, region), Graph(rendered)
    ordered = [graph.known[urn] for urn in graph.order()]
    emulator.create(one for one in ordered if one.type.startswith("aws:") and not one.external_id)
    return emulator


RUNS: Final = {
    "dev-aws": ("us-east-1", lambda: stack_of_repository("dev-aws").rendered),
    "prod-aws": ("us-west-2", lambda: stack_of_repository("prod-aws").rendered),
    "everything": (REGION, everything),
}


@pytest.mark.parametrize("name", RUNS)
def test_each_call_is_accepted_with_the_answers_before_it(server: str, name: str) -> None:
    region, rendered = RUNS[name]
    emulator = created(server, region, rendered())
    assert [refused for refused in emulator.refused if not any(operation in refused for operation in REFUSED)] == []
    assert emulator.unknown <= UNKNOWN
    assert {"eks:CreateCluster", "eks:CreateNodegroup", "iam:CreateRole", "logs:PutRetentionPolicy"} <= {
        *emulator.answered
    }
    groups = emulator.client("logs").describe_log_groups(logGroupNamePrefix="/aws/eks/")["logGroups"]
    assert [group["retentionInDays"] for group in groups] == [365]


def test_a_name_that_is_in_use_is_refused(server: str) -> None:
    """So the emulator would reject the second `pulumi up` without the takeover of the log group."""
    emulator = Emulator(server, "eu-west-1")
    (log,) = (one for one in stack_of_repository("dev-aws").rendered.registrations if one.type.endswith(":LogGroup"))
    emulator.create([log])
    assert emulator.refused == []
    emulator.create([log])
    assert "ResourceAlreadyExistsException" in emulator.refused[0]


def test_doctor_asks_it_by_aws_own_command_line(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Operations that moto lacks are unknown, not missing: quotas of EC2, simulation of rights, EKS' versions."""
    ec2 = Emulator(server, "us-west-2").client("ec2")
    network = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    sections: Data = deepcopy(dict(read_stack("prod-aws", ROOT).sections))
    subnets = sections["cluster"]["subnets"]
    for number, zone in enumerate(subnets):
        made = ec2.create_subnet(VpcId=network, CidrBlock=f"10.0.{number}.0/24", AvailabilityZone=zone)
        subnets[zone] = made["Subnet"]["SubnetId"]
    for name, value in {**LOGIN, "AWS_ENDPOINT_URL": server, "AWS_CONFIG_FILE": "", "AWS_MAX_ATTEMPTS": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{pathsep}{environ['PATH']}")
    verdicts: dict[str, set[str]] = {}
    for row in cloud_rows(stack_of(sections), cluster(sections).rendered.registrations):
        verdicts.setdefault(row.check, set()).add(row.verdict)
    assert verdicts == {
        **{check: {"OK"} for check in ("zones", "subnets")},
        **{check: {"unknown"} for check in ("quota", "rights", "Kubernetes")},
    }


# Charts of clouds with the values of releases: where their pods run, and the definitions of the objects of pools


SYSTEM: Final = "m7i.4xlarge"
TAINT: Final = {"key": "example.com/team", "value": "a", "effect": "NoExecute"}
Objects = Callable[[str], list[Manifest]]


def with_fabric(cluster: Data) -> Data:
    wired = {"fabric": True, "zones": ["eu-central-1a"]}
    return eks_stack(
        cluster,
        gpu=eks_pool("p5.48xlarge", {"min": 1, "max": 2}, taints=[TAINT], **wired),
        slices=eks_pool("p4de.24xlarge", {"min": 0, "max": 1}, sharing={"mig": {"profile": "1g.10gb"}}),
    )


@pytest.fixture(scope="module")
def releases() -> dict[str, ReleasePlan]:
    made: dict[str, ReleasePlan] = {}
    for section in (eks_creation(), eks_section(autoscaler="karpenter")):
        for resource in sent(with_fabric(section)):
            if resource.type == "kubernetes:helm.sh/v3:Release":
                given = resource.inputs
                name, version = text_at(given, "name"), text_at(given, "version")
                values = map_at(given, "values")
                made[name] = ReleasePlan(name, name, None, version, text_at(given, "namespace"), values, ())
    return made


@pytest.fixture(scope="module")
def objects(releases: dict[str, ReleasePlan], report: Report) -> Objects:
    """The objects of a chart; the test is skipped for charts that cannot be rendered here."""
    return lambda chart: rendered(releases[chart], report)


def test_every_chart_of_a_cloud_is_a_release(releases: dict[str, ReleasePlan]) -> None:
    assert set(releases) == set(cloud_charts())


@pytest.mark.parametrize("chart", cloud_charts())
def test_every_value_that_is_set_is_one_of_the_charts(chart: str, releases: dict[str, ReleasePlan]) -> None:
    defaults = yaml.safe_load((of_upstream(chart) / "values.yaml").read_text(encoding="utf-8"))
    accepted = ChartValues.model_construct(keys=described(defaults), contains=())
    # Flags of Cluster Autoscaler, of which the file has some.
    assert [keys for keys, _ in accepted.unknown(releases[chart].values) if keys[0] != "extraArgs"] == []


@pytest.mark.parametrize("chart", cloud_charts())
def test_pods_are_critical_in_kube_system(chart: str, objects: Objects) -> None:
    for owner, pod in templates(objects(chart)):
        assert pod.get("priorityClassName") in CRITICAL
        assert text_at(owner, "metadata", "namespace") in {"", "kube-system"}


def test_they_are_released_to_the_namespace_of_the_system(releases: dict[str, ReleasePlan]) -> None:
    assert {release.namespace for release in releases.values()} == {"kube-system"}


@pytest.mark.parametrize("chart", cloud_charts())
def test_deployments_fit_on_one_system_node(chart: str, objects: Objects) -> None:
    cpu, memory = allocatable(machines()["aws", SYSTEM])
    for owner, pod in templates(objects(chart)):
        asked = {resource: list(requested(pod, resource)) for resource in (CPU, MEMORY)}
        assert 0 < sum(map(parse_cpu, asked[CPU])) < cpu / 4
        assert 0 < sum(map(parse_bytes, asked[MEMORY])) < memory / 4
        if chart == "karpenter" and owner["kind"] == "Deployment":
            assert {"key": "karpenter.sh/nodepool", "operator": "DoesNotExist"} in list(_required(pod))


def test_the_efa_plugin_runs_on_nodes_with_efa_alone(objects: Objects) -> None:
    ((_, pod),) = templates(objects("aws-efa-k8s-device-plugin"))
    types = [row["values"] for row in _required(pod) if row["key"] == "node.kubernetes.io/instance-type"]
    assert types == [["p5.48xlarge"]]
    tolerated = [(row.get("key"), row.get("effect")) for row in maps_at(pod, "tolerations")]
    assert {("nvidia.com/gpu", "NoSchedule"), ("example.com/team", "NoExecute")} <= set(tolerated)


def test_no_webhook_of_theirs_fails_closed(objects: Objects) -> None:
    hooks = [hook for chart in cloud_charts() for made in objects(chart) for hook in maps_at(made, "webhooks")]
    assert [hook for hook in hooks if text_at(hook, "failurePolicy") != "Ignore"] == []


def test_every_object_of_karpenter_has_its_definition(objects: Objects) -> None:
    """The chart's own folder `crds` is skipped: Helm would never update it."""
    served = {
        (f"{text_at(made, 'spec', 'group')}/{text_at(version, 'name')}", text_at(made, "spec", "names", "kind"))
        for made in objects("karpenter-crd")
        for version in maps_at(made, "spec", "versions")
    }
    used = {
        (text_at(made.inputs, "apiVersion"), text_at(made.inputs, "kind"))
        for made in sent(with_fabric(eks_section(autoscaler="karpenter")))
        if "karpenter" in text_at(made.inputs, "apiVersion")
    }
    assert {kind for _, kind in used} == {"EC2NodeClass", "NodePool", "NodeOverlay"}
    assert used <= served


def _required(pod: dict[str, Json]) -> list[dict[str, Json]]:
    path = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
    return [dict(row) for term in maps_at(pod, *path) for row in maps_at(term, "matchExpressions")]
