"""GPUs of NVIDIA's DRA driver in place of a device plugin: what is refused with them."""

from typing import Any

from builders import EKS, Data, errors, planned, stack

OFF: Data = {"install": "here", "values": {"devicePlugin": {"enabled": False}}}
WITH: Data = {"operators": {"draDriver": "here", "gpuOperator": OFF}}


def driven(**sections: Any) -> Data:
    """A stack on EKS whose GPUs the DRA driver allocates."""
    return stack(cluster=sections.pop("cluster", EKS), **WITH, **sections)


def test_pods_and_quotas_are_those_of_a_device_plugin() -> None:
    assert errors(driven()) == []
    plugin = stack(cluster=EKS)
    assert planned(driven()).queues == planned(plugin).queues
    assert planned(driven()).teams == planned(plugin).teams
