"""Stacks on EKS are created on moto, an emulator of AWS, and `doctor --cloud` asks it by AWS' own command line.

It checks more than the descriptions of APIs: that what a call names exists, and that names are unique.
"""

import sys
from collections.abc import Generator
from copy import deepcopy
from os import environ, pathsep
from pathlib import Path
from typing import Final

import pytest
from aws_emulator import LOGIN, Emulator, emulated
from builders import Data
from cloud_stacks import REGION
from components_builders import cluster
from dependency_graph import Graph
from rendered_stacks import stack_of_repository
from repository import ROOT
from test_clouds_names import STACKS

from gpu_tenancy.doctor.checks import cloud_rows
from gpu_tenancy.engine.render import Rendered
from gpu_tenancy.model.load import load
from gpu_tenancy.model.project import read_stack
from gpu_tenancy.model.source import Source

pytestmark = [pytest.mark.process, pytest.mark.slow]

UNKNOWN: Final = {
    "ec2:CreatePlacementGroup",
    "eks:AssociateAccessPolicy",
    "eks:CreateAccessEntry",
    "eks:CreateAddon",
    "eks:CreatePodIdentityAssociation",
}
"""Operations that moto does not have: what they send is compared with AWS' own descriptions only."""
REFUSED: Final = ("CreateNatGateway",)
"""moto does not know regional NAT gateways, and wants a subnet."""


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
    """The emulator with all that a stack registers on AWS."""
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
def test_each_call_of_a_stack_is_accepted_with_what_the_calls_before_it_answered(server: str, name: str) -> None:
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
    """So the emulator would notice what a second `pulumi up` meets without the takeover of the log group."""
    emulator = Emulator(server, "eu-west-1")
    (log,) = (one for one in stack_of_repository("dev-aws").rendered.registrations if one.type.endswith(":LogGroup"))
    emulator.create([log])
    assert emulator.refused == []
    emulator.create([log])
    assert "ResourceAlreadyExistsException" in emulator.refused[0]


def test_doctor_asks_it_by_aws_own_command_line(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What moto does not have is unknown, not missing: quotas of EC2, the simulation of rights, EKS' versions."""
    emulator = Emulator(server, "us-west-2")
    ec2 = emulator.client("ec2")
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
    for row in cloud_rows(load(Source(sections))):
        verdicts.setdefault(row.check, set()).add(row.verdict)
    assert verdicts == {
        **{check: {"OK"} for check in ("zones", "subnets")},
        **{check: {"unknown"} for check in ("quota", "rights", "Kubernetes")},
    }
