"""EKS: edits of `nodes.min` and `nodes.max` on node groups that run, by the rules of engine, provider and EKS."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import pytest
from builders import Data
from eks_stacks import LIST, READ, machine_pool, one, resources, section, stack
from pulumi.runtime.proto.resource_pb2 import ResourceInvokeRequest, ResourceInvokeResponse

from gpu_tenancy.engine.recording import RecordingMonitor, Registration

GROUP: Final = "aws:eks/nodeGroup:NodeGroup"


def registered(sections: Data, live: Mapping[str, int] | None = None) -> Registration:
    """The GPU pool's node group, as the program registers it."""
    return one(resources(sections, live), GROUP, "cluster-pool-gpu-group")


def after_ignoring(inputs: Mapping[str, Any], stored: Mapping[str, Any], ignored: Sequence[str]) -> dict[str, Any]:
    """Inputs with the stored values of `ignoreChanges`, as Pulumi's engine takes them.

    https://www.pulumi.com/docs/iac/concepts/options/ignorechanges/
    """
    result = dict(inputs)
    for path in ignored:
        key, _, member = path.partition(".")
        if member:
            result[key] = {**result[key], member: stored[key][member]}
        else:
            result[key] = stored[key]
    return result


def scaling_request(inputs: Mapping[str, Any], stored: Mapping[str, Any]) -> Mapping[str, int] | None:
    """`scalingConfig` of UpdateNodegroupConfig: nothing without a change, else all three numbers.

    `resourceNodeGroupUpdate` and `expandNodegroupScalingConfig` in
    https://github.com/hashicorp/terraform-provider-aws/blob/main/internal/service/eks/node_group.go
    """
    changed = inputs["scalingConfig"] != stored["scalingConfig"]
    return cast("Mapping[str, int]", inputs["scalingConfig"]) if changed else None


@dataclass
class NodeGroup:
    """A node group in the cloud, with what Pulumi's state has of it."""

    stored: Mapping[str, Any]
    minimum: int
    maximum: int
    running: int

    @classmethod
    def created(cls, sections: Data) -> "NodeGroup":
        inputs = cast("Mapping[str, Any]", registered(sections).inputs)
        size = inputs["scalingConfig"]
        return cls(inputs, size["minSize"], size["maxSize"], size["desiredSize"])

    def up(self, sections: Data) -> None:
        """Deploys a stack.

        Raises:
            ValueError: EKS rejects the numbers:
                https://docs.aws.amazon.com/eks/latest/APIReference/API_NodegroupScalingConfig.html.
        """
        live = {"minSize": self.minimum, "maxSize": self.maximum, "desiredCapacity": self.running}
        registration = registered(sections, live)
        inputs = after_ignoring(registration.inputs, self.stored, registration.ignore_changes)
        request = scaling_request(inputs, self.stored)
        self.stored = inputs
        if request is None:
            return
        if not request["minSize"] <= request["desiredSize"] <= request["maxSize"]:
            raise ValueError(request)
        self.minimum, self.maximum, self.running = request["minSize"], request["maxSize"], request["desiredSize"]


def gpus(minimum: int, maximum: int, **more: Any) -> Data:
    """A stack with bounds of its GPU pool."""
    return stack(gpu=machine_pool(nodes={"min": minimum, "max": maximum}, **more))


@pytest.mark.parametrize(
    ("before", "running", "edited", "expected"),
    [
        pytest.param((0, 4), 4, (0, 8), (0, 8, 4), id="a higher maximum ends no busy node"),
        pytest.param((0, 4), 1, (2, 4), (2, 4, 2), id="a minimum above what runs adds nodes"),
        pytest.param((0, 4), 3, (1, 4), (1, 4, 3), id="a minimum below what runs changes nothing else"),
        pytest.param((2, 4), 4, (0, 4), (0, 4, 4), id="a lower minimum leaves removal to the autoscaler"),
        pytest.param((0, 8), 6, (0, 4), (0, 6, 6), id="a maximum below what runs waits for the nodes"),
        pytest.param((0, 4), 0, (0, 8), (0, 8, 0), id="an empty group stays empty"),
    ],
)
def test_an_edit_of_the_bounds_ends_no_node_and_is_accepted(
    before: tuple[int, int], running: int, edited: tuple[int, int], expected: tuple[int, int, int]
) -> None:
    node_group = NodeGroup.created(gpus(*before))
    node_group.running = running
    node_group.up(gpus(*edited))
    assert (node_group.minimum, node_group.maximum, node_group.running) == expected


def test_a_deployment_without_an_edit_sends_no_number_of_nodes() -> None:
    node_group = NodeGroup.created(gpus(0, 4))
    node_group.running = 3
    stored = node_group.stored["scalingConfig"]
    node_group.up(gpus(0, 4, labels={"example.com/row": "7"}))
    assert node_group.running == 3
    assert node_group.stored["scalingConfig"] == stored


def test_edits_one_after_the_other_end_no_node() -> None:
    node_group = NodeGroup.created(gpus(0, 4))
    node_group.running = 4
    node_group.up(gpus(0, 8))
    node_group.running = 7
    node_group.up(gpus(0, 8))
    node_group.up(gpus(1, 10))
    assert (node_group.minimum, node_group.maximum, node_group.running) == (1, 10, 7)


def test_a_lower_maximum_applies_at_the_next_deployment_after_the_nodes_are_removed() -> None:
    node_group = NodeGroup.created(gpus(0, 8))
    node_group.running = 6
    node_group.up(gpus(0, 4))
    node_group.running = 2
    node_group.up(gpus(0, 4))
    assert (node_group.maximum, node_group.running) == (4, 2)


def test_changed_bounds_are_restored_without_ending_nodes() -> None:
    node_group = NodeGroup.created(gpus(0, 4))
    node_group.minimum, node_group.maximum, node_group.running = 0, 16, 9
    node_group.stored = {**node_group.stored, "scalingConfig": {"minSize": 0, "maxSize": 16, "desiredSize": 9}}
    node_group.up(gpus(0, 12))
    assert (node_group.maximum, node_group.running) == (12, 9)


def test_a_group_is_created_with_its_minimum() -> None:
    node_group = NodeGroup.created(gpus(2, 4))
    assert (node_group.minimum, node_group.maximum, node_group.running) == (2, 4, 2)
    assert registered(gpus(2, 4)).ignore_changes == ()


def test_live_queries_use_the_stacks_region(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []
    invoke = RecordingMonitor.Invoke

    def recorded(monitor: RecordingMonitor, request: ResourceInvokeRequest) -> ResourceInvokeResponse:
        asked.append((request.tok, request.provider))
        return invoke(monitor, request)

    monkeypatch.setattr(RecordingMonitor, "Invoke", recorded)
    registrations = resources(gpus(0, 8), {"minSize": 0, "maxSize": 4, "desiredCapacity": 2})
    own = one(registrations, "pulumi:providers:aws")
    assert {token for token, _ in asked} == {LIST, READ}
    assert all(provider.startswith(own.urn) for _, provider in asked)


def test_the_desired_size_is_the_current_one() -> None:
    tags = [cast("Any", registered(sections).inputs)["tags"] for sections in (gpus(0, 4), fixed())]
    assert [tag.get("gpu-tenancy.dev/desired-size") for tag in tags] == ["live", None]


def fixed() -> Data:
    """A stack without an autoscaler."""
    return stack(section(autoscaler="none"))


def test_without_an_autoscaler_the_number_is_the_stacks() -> None:
    live = {"minSize": 1, "maxSize": 1, "desiredCapacity": 1}
    sections = stack(section(autoscaler="none"), gpu=machine_pool(nodes=3))
    registration = registered(sections, live)
    assert registration.ignore_changes == ()
    assert registration.inputs["scalingConfig"] == {"minSize": 3, "maxSize": 3, "desiredSize": 3}
