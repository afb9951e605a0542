"""AWS emulated by moto, and the calls with which the AWS provider creates a stack's resources.

The provider itself is a program that no package has: its calls are those of `eks_calls`, in the engine's order, each
with the answers of the calls before it.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, cast

import botocore
import botocore.config as botocore_config
import botocore.exceptions as botocore_exceptions
import botocore.parsers as botocore_parsers
import botocore.session as botocore_session
import jmespath
from eks_description import request_of
from eks_shapes import CALLS, Call
from loopback import LOOPBACK
from starts import GUARD

from gpu_tenancy.engine.recording import Registration

BOTOCORE: Final[Any] = botocore
CONFIG: Final[Any] = botocore_config
EXCEPTIONS: Final[Any] = botocore_exceptions
PARSERS: Final[Any] = botocore_parsers
SESSION: Final[Any] = botocore_session
JMESPATH: Final[Any] = jmespath  # without types, since the packages have none
MANAGED: Final = {"MOTO_IAM_LOAD_MANAGED_POLICIES": "true"}  # moto loads AWS' own policies
LOGIN: Final = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
# Places of values in an answer that other resources use.
RESULTS: Final[Mapping[str, Mapping[str, str]]] = {
    "CreateRole": {"arn": "Role.Arn", "id": "Role.RoleName"},
    "CreateCluster": {"arn": "cluster.arn", "url": "cluster.identity.oidc.issuer"},
    "CreateNodegroup": {"id": "nodegroup.resources.autoScalingGroups[0].name"},
    "CreateKey": {"arn": "KeyMetadata.Arn", "id": "KeyMetadata.KeyId"},
    "CreateLaunchTemplate": {"id": "LaunchTemplate.LaunchTemplateId"},
    "CreateFileSystem": {"arn": "FileSystemArn", "id": "FileSystemId"},
    "CreateSecurityGroup": {"arn": "SecurityGroupArn", "id": "GroupId"},
    "CreateQueue": {"id": "QueueUrl"},
    "CreateVpc": {"id": "Vpc.VpcId"},
    "CreateSubnet": {"id": "Subnet.SubnetId"},
    "CreateInternetGateway": {"id": "InternetGateway.InternetGatewayId"},
    "CreateNatGateway": {"id": "NatGateway.NatGatewayId"},
    "CreateRouteTable": {"id": "RouteTable.RouteTableId"},
}
KNOWN: Final[Mapping[str, str]] = {
    "version": "1",
    "policy": '{"Version": "2012-10-17", "Statement": []}',
    "assumeRolePolicy": '{"Version": "2012-10-17", "Statement": []}',
}
"""Inputs that the program computes from an answer: the version of a new launch template, and stand-ins of policies that
name an ARN, whose texts other tests evaluate."""
NOT_OF_A_CREATION: Final = frozenset({"ModifyLaunchTemplate", "ScheduleKeyDeletion", "UpdateAddon"})


@dataclass
class Emulator:
    """moto's server, and the results of the calls to it."""

    url: str
    region: str
    answered: dict[str, int] = field(default_factory=dict[str, int])  # calls of operations that succeeded
    unknown: set[str] = field(default_factory=set[str])  # operations that moto does not have
    refused: list[str] = field(default_factory=list[str])  # calls that moto refused, with its message
    _made: dict[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])

    def client(self, service: str) -> Any:
        return _client(self.url, self.region, service)

    def create(self, stack: Iterable[Registration]) -> None:
        for resource in stack:
            inputs, own = self._resolved(resource), dict[str, str]()
            for call in CALLS[resource.type]:
                if call.operation in NOT_OF_A_CREATION:
                    continue
                problems, request = request_of(call, inputs)
                if problems:
                    self.refused.append(f"{resource.name}: {problems}")
                for member in call.fixed if own else ():
                    request[member] = own["id"] if member.endswith("Id") else request[member]
                answer = self._call(resource, call, request)
                own = own or {**_found(call, answer), **self._others(call, request, answer)}
            self._made[resource.urn] = own

    def _others(self, call: Call, request: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, str]:
        """Resources that AWS creates with a resource and moto does not, and the provider's reads after the call."""
        match call.operation:
            case "CreateBucket":
                return {"id": request["Bucket"]}
            case "CreateQueue":
                asked = self.client("sqs").get_queue_attributes(
                    QueueUrl=answer["QueueUrl"], AttributeNames=["QueueArn"]
                )
                return {"arn": asked["Attributes"]["QueueArn"]}
            case "CreateCluster":
                network = self.client("ec2").describe_vpcs()["Vpcs"][-1]["VpcId"]
                group = self.client("ec2").create_security_group(
                    GroupName=f"eks-cluster-sg-{request['name']}", Description="of the cluster", VpcId=network
                )
                return {"id": group["GroupId"], "vpcId": network}
            case "CreateNodegroup":
                self._scaled(answer, request)
                return {}
            case _:
                return {}

    def _scaled(self, answer: Mapping[str, Any], request: Mapping[str, Any]) -> None:
        """The Auto Scaling group of a node group, of its launch template."""
        template = request["launchTemplate"]
        self.client("autoscaling").create_auto_scaling_group(
            AutoScalingGroupName=answer["nodegroup"]["resources"]["autoScalingGroups"][0]["name"],
            MinSize=0,
            MaxSize=request["scalingConfig"]["maxSize"],
            LaunchTemplate={"LaunchTemplateId": template["id"], "Version": template["version"]},
            AvailabilityZones=[f"{self.region}a"],
        )

    def _call(self, resource: Registration, call: Call, request: Mapping[str, Any]) -> Mapping[str, Any]:
        name = f"{call.service}:{call.operation}"
        try:
            answer = getattr(self.client(call.service), BOTOCORE.xform_name(call.operation))(**request)
        except PARSERS.ResponseParserError:  # a page of the server's instead of an answer
            self.unknown.add(name)
            return {}
        except EXCEPTIONS.ParamValidationError as error:
            self.refused.append(f"{resource.name}: {error}")
            return {}
        except EXCEPTIONS.ClientError as error:
            if error.response["Error"]["Code"] in {"404", "500", "501"}:
                self.unknown.add(name)
            else:
                self.refused.append(f"{resource.name}: {error}")
            return {}
        self.answered[name] = self.answered.get(name, 0) + 1
        return cast("Mapping[str, Any]", answer)

    def _resolved(self, resource: Registration) -> Mapping[str, Any]:
        """The inputs with values of the cloud's answers; without a value that no call answered."""
        inputs: dict[str, Any] = deepcopy(dict(resource.inputs))
        for path in sorted(resource.unknown_paths, key=str, reverse=True):
            needed = [
                self._made[urn] for urn in resource.property_dependencies.get(str(path[0]), ()) if urn in self._made
            ]
            key = next(str(step) for step in reversed(path) if isinstance(step, str))
            wanted = "arn" if key.lower().endswith("arn") else "id"
            value = next((made.get(key) or made[wanted] for made in needed if wanted in made), None)
            parent: Any = inputs
            for step in path[:-1]:
                parent = parent[step]
            value = KNOWN.get(key, value)
            if value is None:
                del parent[path[-1]]
            else:
                parent[path[-1]] = value
        for key, needed in resource.property_dependencies.items():
            # A preview without a cloud takes the resource's name in the program as its ID.
            ids = {urn.rpartition("::")[2]: self._made[urn]["id"] for urn in needed if "id" in self._made.get(urn, {})}
            inputs[key] = _renamed(inputs.get(key), ids)
        return inputs


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    match value:
        case str():
            return names.get(value, value)
        case list():
            return [_renamed(item, names) for item in cast("list[Any]", value)]
        case dict():
            return {key: _renamed(item, names) for key, item in cast("dict[str, Any]", value).items()}
        case _:
            return value


def _found(call: Call, answer: Mapping[str, Any]) -> dict[str, str]:
    return {key: str(JMESPATH.search(path, answer)) for key, path in RESULTS.get(call.operation, {}).items()}


@cache
def _client(url: str, region: str, service: str) -> Any:
    return SESSION.get_session().create_client(
        service,
        region_name=region,
        endpoint_url=url,
        aws_access_key_id=LOGIN["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=LOGIN["AWS_SECRET_ACCESS_KEY"],
        config=CONFIG.Config(retries={"max_attempts": 0}),
    )


@contextmanager
def emulated() -> Generator[str]:
    """moto's server on the loopback while the block runs; yields its address."""
    with socket.socket() as chosen:
        chosen.bind((LOOPBACK, 0))
        port = chosen.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "--host", LOOPBACK, "--port", str(port)],
        env={**os.environ, **MANAGED},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait(server, port)
        yield f"http://{LOOPBACK}:{port}"
    finally:
        server.kill()  # it has nothing to save
        server.wait(GUARD)


def _wait(server: "subprocess.Popen[bytes]", port: int) -> None:
    end = time.monotonic() + GUARD
    while server.poll() is None and time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex((LOOPBACK, port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError("moto's server did not start")
