"""Devices of DRA drivers as resources of nodes."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpu_tenancy.base.json import Json, map_at, maps_at, text_at
from gpu_tenancy.inspect.pods import name_of
from gpu_tenancy.kube.client import Manifest

_DRIVER: Final = re.compile(r"""device\.driver == ["']([^"']+)["']""")
_TYPE: Final = re.compile(r"""\.type == ["']([^"']+)["']""")


@dataclass(frozen=True, slots=True)
class _Class:
    """What devices a DeviceClass selects: of a driver, and of a type if its selectors name one."""

    resource: str
    driver: str
    kind: str


def with_devices(
    nodes: Sequence[Manifest], classes: Iterable[Manifest], slices: Iterable[Manifest]
) -> tuple[Manifest, ...]:
    """Nodes whose allocatable resources include the devices that pods can request by name, as a device plugin's would.

    A DeviceClass with an `extendedResourceName` has the scheduler allocate devices of the class to pods that request
    that resource. The kubelet then reports none: the devices are in ResourceSlices.
    https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/#extended-resource

    Classes are understood if their selectors compare the driver, and its attribute `type`, with texts, as those of
    NVIDIA's driver do; others are ignored.
    """
    found: dict[str, Counter[str]] = defaultdict(Counter)
    known = [one for item in classes if (one := _class(item))]
    for item in slices:
        for one in known:
            if text_at(item, "spec", "driver") == one.driver:
                kinds = [text_at(device, "attributes", "type", "string") for device in maps_at(item, "spec", "devices")]
                count = sum(not one.kind or kind == one.kind for kind in kinds)
                found[text_at(item, "spec", "nodeName")][one.resource] += count
    return tuple(_added(node, found.get(name_of(node), {})) for node in nodes)


def _class(item: Manifest) -> _Class | None:
    resource = text_at(item, "spec", "extendedResourceName")
    text = " ".join(text_at(selector, "cel", "expression") for selector in maps_at(item, "spec", "selectors"))
    driver, kind = _DRIVER.search(text), _TYPE.search(text)
    return _Class(resource, driver[1], kind[1] if kind else "") if resource and driver else None


def _added(node: Manifest, devices: Mapping[str, int]) -> Manifest:
    if not devices:
        return node
    counted: dict[str, Json] = {name: str(count) for name, count in devices.items()}
    status: dict[str, Json] = {
        **map_at(node, "status"),
        "allocatable": {**map_at(node, "status", "allocatable"), **counted},
    }
    return {**node, "status": status}
