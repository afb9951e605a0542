"""GPUs of DRA drivers as resources of nodes."""

from builders import GPU

from gpu_tenancy.base.json import Json
from gpu_tenancy.cluster.reading import with_devices
from gpu_tenancy.kube.client import Manifest

DRIVER = "gpu.nvidia.com"
NVIDIAS = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'"
NODE: Manifest = {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "8"}}}


def device_class(expression: str = NVIDIAS, resource: str | None = GPU) -> Manifest:
    named: dict[str, Json] = {"extendedResourceName": resource} if resource else {}
    return {"metadata": {"name": DRIVER}, "spec": {**named, "selectors": [{"cel": {"expression": expression}}]}}


def slice_of(*kinds: str, node: str = "n", driver: str = DRIVER) -> Manifest:
    devices: list[Json] = [
        {"name": f"{kind}-{number}", "attributes": {"type": {"string": kind}}} for number, kind in enumerate(kinds)
    ]
    return {"spec": {"driver": driver, "nodeName": node, "devices": devices}}


def counted(classes: list[Manifest], slices: list[Manifest]) -> Json:
    (node,) = with_devices([NODE], classes, slices)
    status = node["status"]
    assert isinstance(status, dict)
    return status["allocatable"]


def test_whole_gpus_of_all_slices_of_a_node_count_and_partitions_do_not() -> None:
    slices = [slice_of("gpu", "gpu", "mig"), slice_of("gpu")]
    assert counted([device_class()], slices) == {"cpu": "8", GPU: "3"}


def test_devices_of_other_nodes_and_drivers_do_not_count() -> None:
    slices = [slice_of("gpu", node="other"), slice_of("gpu", driver="gpu.example.com")]
    assert counted([device_class()], slices) == {"cpu": "8"}


def test_unrelated_device_classes_have_no_effect() -> None:
    for one in (device_class(resource=None), device_class("device.attributes['x'].fast")):
        assert counted([one], [slice_of("gpu")]) == {"cpu": "8"}
