"""Preflight on AWS, by read-only operations of the AWS CLI."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.clouds.clients import AwsCli, NoAnswerError, NotFoundError, Run
from gpu_tenancy.doctor.needs import NodesNeed, nodes_of
from gpu_tenancy.doctor.results import Question, Quota, Row, cluster_question, compared, judged, rights_of, zone_row
from gpu_tenancy.model.catalogue.preflight import AwsQuota, preflight
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.clouds.aws import AwsCluster

# Free addresses that EKS requires in each subnet of a control plane:
# https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html.
_CONTROL_PLANE: Final = 6
# The process of Auto Scaling that balances zones:
# https://docs.aws.amazon.com/autoscaling/ec2/userguide/as-suspend-resume-processes.html.
_REBALANCE: Final = "AZRebalance"


def questions(stack: Stack, section: AwsCluster, types: Sequence[str], run: Run) -> Iterator[Question]:
    """Questions of a preflight to AWS; `types` are those of the stack's resources."""
    cli, needs = AwsCli(run, section.region), nodes_of(stack, section)
    try:
        caller = str(cli.ask("sts", "get-caller-identity")["Arn"])  # This operation needs no right.
    except NoAnswerError as error:
        raise ConsoleError(f"aws sts get-caller-identity: {error}", "run it yourself, and correct the login") from error
    yield from _quotas(cli, needs)
    machines = ", ".join(sorted({need.machine.type for need in needs}))
    yield Question("zones", machines, "offered in the zones", lambda: _zones(cli, needs, section))
    if creation := section.create:
        zones = [*(creation.subnets or section.zonal)]
        yield Question("zones", "control plane", "zones of EKS", lambda: _control_plane(cli, zones))
    if section.subnets:
        yield Question("subnets", ", ".join(section.subnets), "free addresses", lambda: _subnets(cli, needs, section))
    # Pools with GPUs whose node groups have several zones; Karpenter has no Auto Scaling groups.
    spread = [need.pool for need in needs if need.machine.gpus and len(need.zones or section.zonal) > 1]
    if spread and section.autoscaler != "karpenter":
        rebalanced = partial(_rebalanced, cli, section.name, spread)
        yield Question("rebalancing", ", ".join(spread), f"{_REBALANCE} suspended", rebalanced)
    rights = preflight().aws.needed(types)
    yield rights_of(caller, rights, lambda: _rights(cli, caller, rights), f"allow it for {caller}")
    offered = partial(cli.ask, "eks", "describe-cluster-versions")
    versions = ("EKS", lambda: [row["clusterVersion"] for row in offered()["clusterVersions"]])
    ready = ("ACTIVE", lambda: cli.ask("eks", "describe-cluster", name=section.name)["cluster"]["status"])
    yield cluster_question(section, versions, ready, "cluster.name and cluster.region")


def _quotas(cli: AwsCli, needs: Iterable[NodesNeed]) -> Iterator[Question]:
    # Machines of a reservation were counted when it was made.
    sums = Counter[AwsQuota]()
    for need in (need for need in needs if not need.reserved):
        cpus = need.nodes * need.cpus
        if quota := preflight().aws.quota_of(need.machine.type, spot=need.preemptible):
            sums[quota] += cpus
        else:
            fix = f"compare the quota of {need.machine.type} at https://console.aws.amazon.com/servicequotas"
            row = Row("quota", need.machine.type, f"{cpus} vCPUs", "not in the catalogue", "unknown", fix)
            yield Question("quota", need.machine.type, row.needed, lambda row=row: [row])
    for quota, cpus in sums.items():
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


def _zones(cli: AwsCli, needs: Sequence[NodesNeed], section: AwsCluster) -> Iterator[Row]:
    filters = [{"Name": "instance-type", "Values": sorted({need.machine.type for need in needs})}]
    answer = cli.ask("ec2", "describe-instance-type-offerings", LocationType="availability-zone", Filters=filters)
    offered: dict[str, set[str]] = {}
    for offering in answer["InstanceTypeOfferings"]:
        offered.setdefault(offering["InstanceType"], set()).add(offering["Location"])
    for need in needs:
        zones, there = need.zones or section.zonal, offered.get(need.machine.type, set())
        # Without zones of its own, a node group uses those of the subnets that have machines.
        fits = set(zones) <= there if need.zones else bool(set(zones) & there)
        wanted = f"{'all' if need.zones else 'one'} of {', '.join(zones)}"
        available = ", ".join(sorted(there)) or f"no zone of {section.region}"
        yield zone_row(need, wanted, available, there & set(section.zones), fits=fits)


def _control_plane(cli: AwsCli, zones: Sequence[str]) -> Iterator[Row]:
    """Whether EKS has control planes in some zones, of which only the account knows the IDs."""
    answer = cli.ask("ec2", "describe-availability-zones", ZoneNames=list(zones))
    closed = {
        row["ZoneName"] for row in answer["AvailabilityZones"] if row["ZoneId"] in preflight().aws.no_control_plane
    }
    available = f"not in {', '.join(sorted(closed))}" if closed else "all"
    fix = "set cluster.create.subnets, or cluster.create.zones, to other zones: EKS has no control plane there"
    yield judged("zones", "control plane", ", ".join(zones), available, fits=not closed, fix=fix)


def _subnets(cli: AwsCli, needs: Iterable[NodesNeed], section: AwsCluster) -> Iterator[Row]:
    """Addresses of nodes and their network interfaces; with the VPC CNI, each pod needs another one."""
    answer = cli.ask("ec2", "describe-subnets", SubnetIds=sorted(section.subnets.values()))
    known = {subnet["SubnetId"]: subnet for subnet in answer["Subnets"]}
    for zone, name in section.subnets.items():
        own = [need for need in needs if not need.zones or zone in need.zones]
        needed = sum(need.nodes * (1 + need.interfaces) for need in own) + (_CONTROL_PLANE if section.create else 0)
        row, subnet = partial(judged, "subnets", f"{name} in {zone}"), known.get(name)
        if subnet is None:
            fix = f"set cluster.subnets.{zone} to a subnet that exists"
            yield row(f"{needed} addresses", "no such subnet", fits=False, fix=fix)
        elif (actual := subnet["AvailabilityZone"]) != zone:
            yield row(zone, actual, fits=False, fix=f"move it to {actual} under cluster.subnets")
        else:
            free = int(subnet["AvailableIpAddressCount"])
            fix = "use a larger subnet; each pod needs a further address with the VPC CNI"
            yield row(f"at least {needed} addresses", f"{free:,} free", fits=free >= needed, fix=fix)


def _rebalanced(cli: AwsCli, cluster: str, pools: Iterable[str]) -> Iterator[Row]:
    # Auto Scaling ends running nodes to balance zones. EKS has no setting for it:
    # https://github.com/aws/containers-roadmap/issues/1453.
    filters = [{"Name": "tag:eks:cluster-name", "Values": [cluster]}]
    by_pool = {
        str(tag["Value"]): group
        for group in cli.ask("autoscaling", "describe-auto-scaling-groups", Filters=filters)["AutoScalingGroups"]
        for tag in group["Tags"]
        if tag["Key"] == "eks:nodegroup-name"
    }
    for pool in (pool for pool in pools if pool in by_pool):
        name = by_pool[pool]["AutoScalingGroupName"]
        fits = _REBALANCE in {one["ProcessName"] for one in by_pool[pool]["SuspendedProcesses"]}
        group = f"--region {cli.region} --auto-scaling-group-name {name} --scaling-processes {_REBALANCE}"
        fix = f"set one zone in pools.{pool}.zones, or run `aws autoscaling suspend-processes {group}`"
        available = "suspended" if fits else "ends running nodes"
        yield judged("rebalancing", pool, f"{_REBALANCE} suspended", available, fits=fits, fix=fix)


def _rights(cli: AwsCli, caller: str, rights: list[str]) -> dict[str, str]:
    principal = caller
    # The role of an assumed-role session: a session's ARN does not have the role's path.
    if match := re.fullmatch(r"arn:[\w-]+:sts::\d+:assumed-role/([^/]+)/.+", caller):
        principal = str(cli.ask("iam", "get-role", RoleName=match[1])["Role"]["Arn"])
    answer = cli.ask("iam", "simulate-principal-policy", PolicySourceArn=principal, ActionNames=rights)
    return {result["EvalActionName"]: result["EvalDecision"] for result in answer["EvaluationResults"]}
