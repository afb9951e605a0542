"""Preflight on AWS: asks with the AWS CLI, by operations that only read."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.clouds.aws import AwsCli
from gpu_tenancy.clouds.programs import NoAnswerError, NotFoundError, Run
from gpu_tenancy.doctor.needs import NodesNeed, nodes_of, parts_of, zone_fix
from gpu_tenancy.doctor.results import (
    Question,
    Quota,
    Row,
    cluster_row,
    compared,
    judged,
    version_row,
)
from gpu_tenancy.model.catalogue.preflight import AwsQuota, preflight
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.clouds.aws import AwsCluster

_CONTROL_PLANE: Final = 6
"""Free addresses that EKS requires in each subnet of a control plane:
https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html."""


_REBALANCE: Final = "AZRebalance"
"""The process of Auto Scaling that balances zones:
https://docs.aws.amazon.com/autoscaling/ec2/userguide/as-suspend-resume-processes.html."""


def questions(stack: Stack, section: AwsCluster, run: Run) -> Iterator[Question]:
    """What a preflight asks AWS."""
    cli, needs = AwsCli(run, section.region), nodes_of(stack, section)
    caller = _caller(cli)
    yield from _quotas(cli, needs)
    types = sorted({need.type for need in needs})
    zones = partial(_zones, cli, needs, section)
    yield Question("zones", ", ".join(types), "offered in the zones", zones)
    if section.subnets:
        yield Question("subnets", ", ".join(section.subnets), "free addresses", partial(_subnets, cli, needs, section))
    if spread := _spread(needs, section):
        rebalanced = partial(_rebalanced, cli, section.name, spread)
        yield Question("rebalancing", ", ".join(spread), f"{_REBALANCE} suspended", rebalanced)
    rights = preflight().aws.needed(parts_of(stack))
    yield Question("rights", str(caller["Arn"]), f"{len(rights)} actions", partial(_rights, cli, caller, rights))
    if section.create:
        version = section.create.version
        yield Question("Kubernetes", version, "offered by EKS", partial(_version, cli, version))
    else:
        yield Question("cluster", section.name, "ACTIVE", partial(_cluster, cli, section.name))


def _caller(cli: AwsCli) -> dict[str, Any]:
    """The caller; this operation needs no right."""
    try:
        return cli.ask("sts", "get-caller-identity")
    except NoAnswerError as error:
        raise ConsoleError(f"aws sts get-caller-identity: {error}", "run it yourself, and correct the login") from error


def _quotas(cli: AwsCli, needs: Iterable[NodesNeed]) -> Iterator[Question]:
    """A question for each quota; machines of a reservation were counted when it was made."""
    sums: dict[str, tuple[AwsQuota, int]] = {}
    for need in needs:
        if need.reserved:
            continue
        quota = preflight().aws.quota_of(need.type, spot=need.preemptible)
        if quota is None:
            row = Row(
                "quota", need.type, f"{need.nodes * need.cpus} vCPUs", "not in the catalogue", "unknown",
                f"compare the quota of {need.type} at https://console.aws.amazon.com/servicequotas",
            )  # fmt: skip
            yield Question("quota", need.type, row.needed, lambda row=row: [row])
            continue
        sums[quota.code] = (quota, sums.get(quota.code, (quota, 0))[1] + need.nodes * need.cpus)
    for quota, cpus in sums.values():
        yield Question("quota", quota.name, f"{cpus:,} vCPUs", partial(_quota, cli, quota, cpus))


def _quota(cli: AwsCli, quota: AwsQuota, needed: int) -> Iterator[Row]:
    asked = {"ServiceCode": "ec2", "QuotaCode": quota.code}
    try:
        answer = cli.ask("service-quotas", "get-service-quota", **asked)
    except NotFoundError:
        # A quota that was never changed may be known by its default alone.
        answer = cli.ask("service-quotas", "get-aws-default-service-quota", **asked)
    fix = f"request an increase of {quota.code} in Service Quotas, region {cli.region}"
    yield compared("quota", quota.name, needed, Quota(int(answer["Quota"]["Value"]), None, "vCPUs", fix))


def _zones(cli: AwsCli, needs: Iterable[NodesNeed], section: AwsCluster) -> Iterator[Row]:
    listed = list(needs)
    answer = cli.ask(
        "ec2",
        "describe-instance-type-offerings",
        LocationType="availability-zone",
        Filters=[{"Name": "instance-type", "Values": sorted({need.type for need in listed})}],
    )
    offered: dict[str, set[str]] = {}
    for offering in answer["InstanceTypeOfferings"]:
        offered.setdefault(offering["InstanceType"], set()).add(offering["Location"])
    for need in listed:
        zones, there = need.zones or section.zonal, offered.get(need.type, set())
        # Without zones of its own, a node group uses those of the subnets that have machines.
        fits = set(zones) <= there if need.zones else bool(set(zones) & there)
        yield judged(
            "zones",
            f"{need.pool}: {need.type}",
            f"{'all' if need.zones else 'one'} of {', '.join(zones)}",
            ", ".join(sorted(there)) or f"no zone of {section.region}",
            fits=fits,
            fix=zone_fix(need, there & set(section.zones)),
        )


def _subnets(cli: AwsCli, needs: Iterable[NodesNeed], section: AwsCluster) -> Iterator[Row]:
    """Addresses of nodes and their network interfaces; with the VPC CNI, each pod needs another one."""
    answer = cli.ask("ec2", "describe-subnets", SubnetIds=sorted(section.subnets.values()))
    known = {subnet["SubnetId"]: subnet for subnet in answer["Subnets"]}
    for zone, name in section.subnets.items():
        own = [need for need in needs if not need.zones or zone in need.zones]
        needed = sum(need.nodes * (1 + need.interfaces) for need in own) + (_CONTROL_PLANE if section.create else 0)
        subnet = known.get(name)
        if subnet is None:
            fix = f"set cluster.subnets.{zone} to a subnet that exists"
            yield Row("subnets", f"{name} in {zone}", f"{needed} addresses", "no such subnet", "missing", fix)
        elif subnet["AvailabilityZone"] != zone:
            fix = f"move it to {subnet['AvailabilityZone']} under cluster.subnets"
            yield Row("subnets", f"{name} in {zone}", zone, subnet["AvailabilityZone"], "missing", fix)
        else:
            free = int(subnet["AvailableIpAddressCount"])
            fix = "use a larger subnet; each pod needs a further address with the VPC CNI"
            wanted = f"at least {needed} addresses"
            yield judged("subnets", f"{name} in {zone}", wanted, f"{free:,} free", fits=free >= needed, fix=fix)


def _spread(needs: Iterable[NodesNeed], section: AwsCluster) -> list[str]:
    """Pools with GPUs whose node groups have several zones; Karpenter has no Auto Scaling groups."""
    if section.autoscaler == "karpenter":
        return []
    return [need.pool for need in needs if need.gpu and len(need.zones or section.zonal) > 1]


def _rebalanced(cli: AwsCli, cluster: str, pools: Iterable[str]) -> Iterator[Row]:
    """Whether Auto Scaling ends running nodes to have as many in each zone; groups that do not exist have no row.

    EKS has no setting for it: https://github.com/aws/containers-roadmap/issues/1453.
    """
    filters = [{"Name": "tag:eks:cluster-name", "Values": [cluster]}]
    answer = cli.ask("autoscaling", "describe-auto-scaling-groups", Filters=filters)
    by_pool = {
        str(tag["Value"]): group
        for group in answer["AutoScalingGroups"]
        for tag in group["Tags"]
        if tag["Key"] == "eks:nodegroup-name"
    }
    for pool in pools:
        if group := by_pool.get(pool):
            name, suspended = group["AutoScalingGroupName"], {one["ProcessName"] for one in group["SuspendedProcesses"]}
            fits = _REBALANCE in suspended
            fix = (
                f"set one zone in pools.{pool}.zones, or run `aws autoscaling suspend-processes --region {cli.region}"
                f" --auto-scaling-group-name {name} --scaling-processes {_REBALANCE}`"
            )
            available = "suspended" if fits else "ends running nodes"
            yield judged("rebalancing", pool, f"{_REBALANCE} suspended", available, fits=fits, fix=fix)


def _rights(cli: AwsCli, caller: Mapping[str, Any], rights: list[str]) -> Iterator[Row]:
    answer = cli.ask("iam", "simulate-principal-policy", PolicySourceArn=_principal(cli, caller), ActionNames=rights)
    for result in answer["EvaluationResults"]:
        action, decision = result["EvalActionName"], result["EvalDecision"]
        fix = f"allow {action} for {caller['Arn']}"
        yield judged("rights", action, "allowed", decision, fits=decision == "allowed", fix=fix)


def _principal(cli: AwsCli, caller: Mapping[str, Any]) -> str:
    """The user, or the role of an assumed-role session: a session's ARN does not have the role's path."""
    match = re.fullmatch(r"arn:[\w-]+:sts::\d+:assumed-role/([^/]+)/.+", str(caller["Arn"]))
    if match is None:
        return str(caller["Arn"])
    return str(cli.ask("iam", "get-role", RoleName=match[1])["Role"]["Arn"])


def _version(cli: AwsCli, version: str) -> Iterator[Row]:
    listed = cli.ask("eks", "describe-cluster-versions")["clusterVersions"]
    yield version_row("EKS", version, (str(row["clusterVersion"]) for row in listed))


def _cluster(cli: AwsCli, name: str) -> Iterator[Row]:
    def status() -> object:
        return cli.ask("eks", "describe-cluster", name=name)["cluster"]["status"]

    yield cluster_row(name, "ACTIVE", status, "cluster.name and cluster.region")
