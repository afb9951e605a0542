"""Claims of devices by pods: channels and RDMA interfaces, which Kueue counts, and others, which it does not admit.

https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/dra/claims.go
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from gpu_tenancy.base.json import int_at, maps_at, text_at
from gpu_tenancy.base.quantity import CHANNELS, CLAIMED, INTERFACES, add
from gpu_tenancy.cluster.answers import Answer, Check, Verdict, decisive
from gpu_tenancy.cluster.demand import Demand, channels_of
from gpu_tenancy.cluster.pods import Manifest, name_of
from gpu_tenancy.cluster.reading import Kind, State
from gpu_tenancy.cluster.workloads import PodSet, Reason, Workload
from gpu_tenancy.kube.waiting import condition
from gpu_tenancy.model.names import CHANNEL_CLASS, CLAIM_CLASSES, INTERFACE_CLASS

_Classes: TypeAlias = Mapping[str, int]
"""Number of devices of each DeviceClass that a ResourceClaimTemplate claims."""
_RESOURCES: Final = {name: resource for resource, name in CLAIM_CLASSES.items()}
_NO_TEMPLATE: Final = re.compile(r"failed to get claim spec for ResourceClaimTemplate (\S+) .* not found")
_UNMAPPED: Final = re.compile(r"DeviceClass (\S+) is not mapped")
_OTHER: Final = re.compile(rf"quota for (?!{'|'.join(map(re.escape, CLAIMED))})")
"""Quota that is missing of something else."""
_NOUNS: Final = {CHANNELS: "channels", INTERFACES: "RDMA interfaces of DRANET"}
_CREATE_DOMAIN: Final = "create a ComputeDomain with spec.channel.resourceClaimTemplate.name"
_REQUEST_GPUS: Final = "request GPUs under resources of the containers"


def kinds_claimed(demands: Iterable[Demand]) -> tuple[Kind, ...]:
    """The kinds to read for workloads whose pods claim devices; none for others."""
    claims = any(maps_at(template.spec, "resourceClaims") for demand in demands for template in demand.templates)
    return ("ResourceClaimTemplate", "ComputeDomain") if claims else ()


def claimed(resource: str) -> str:
    """What pods claim, by the resource as which Kueue counts it."""
    return _NOUNS[resource]


def with_channels(state: State, team: str, sets: Sequence[PodSet]) -> list[PodSet]:
    """Pods with what they claim among their requests, as Kueue counts it."""
    classes = _classes(state, team)
    return [replace(pods, pod=add(pods.pod, *_counted(classes, pods.spec))) for pods in sets]


def _counted(classes: Mapping[str, _Classes], spec: Manifest) -> Iterator[dict[str, int]]:
    for claim in maps_at(spec, "resourceClaims"):
        # A template that the driver of ComputeDomains has not made yet is one of a channel.
        requested = classes.get(text_at(claim, "resourceClaimTemplateName"), {CHANNEL_CLASS: 1})
        if requested.keys() <= _RESOURCES.keys() and text_at(claim, "resourceClaimTemplateName"):
            yield {_RESOURCES[name]: count for name, count in requested.items()}


def _classes(state: State, team: str) -> Mapping[str, _Classes]:
    """The DeviceClasses of each ResourceClaimTemplate of a team."""
    return {
        name_of(template): {
            text_at(request, "exactly", "deviceClassName"): int_at(request, "exactly", "count", otherwise=1)
            for request in maps_at(template, "spec", "spec", "devices", "requests")
        }
        for template in state.of("ResourceClaimTemplate", team)
    }


def judge_claims(state: State, team: str, demand: Demand, sets: Iterable[PodSet]) -> Iterator[Answer]:
    """The check of the claims of a workload; none for a workload whose pods claim no devices."""
    claims = [claim for pods in sets if pods.count for claim in maps_at(pods.spec, "resourceClaims")]
    if not claims:
        return
    if not state.knows("ResourceClaimTemplate"):
        yield state.unknown(Check.CLAIMS, "ResourceClaimTemplate")
        return
    made = {*demand.channels, *(channels_of(domain) for domain in state.of("ComputeDomain", team))}
    classes = _classes(state, team)
    yield Answer(Check.CLAIMS, *decisive(dict.fromkeys(_judge(claim, classes, made) for claim in claims)))


def _judge(claim: Manifest, classes: Mapping[str, _Classes], made: Iterable[str]) -> tuple[Verdict, str]:
    name = text_at(claim, "resourceClaimTemplateName")
    if not name:
        own = text_at(claim, "resourceClaimName")
        return "never", f"Kueue admits no pod with a ResourceClaim ({own}); set resourceClaimTemplateName instead"
    template = f"ResourceClaimTemplate {name}"
    if name not in classes and name in made:
        return "now", f"{template} is made by NVIDIA's DRA driver for its ComputeDomain"
    if name not in classes:
        return "never", f"{template} not found; {_CREATE_DOMAIN}: {name}"
    if other := next((one for one in classes[name] if one not in _RESOURCES), None):
        return "never", f"{template} claims devices of DeviceClass {other}, which Kueue does not admit; {_REQUEST_GPUS}"
    if interfaces := classes[name].get(INTERFACE_CLASS):
        return "now", f"each pod claims {interfaces} RDMA interfaces of its node by {template}; they have no limit"
    return "now", f"each pod claims the channel of its node by {template}; channels have no limit"


def claim_pending(workload: Workload) -> Reason | None:
    """Why a workload is pending whose claims Kueue cannot count; None if something else is missing."""
    message = text_at(condition(workload.manifest, "QuotaReserved"), "message")
    if found := _NO_TEMPLATE.search(message):
        missing = f"its pods claim devices by ResourceClaimTemplate {found[1]}, which does not exist"
        return (
            f"{missing}: NVIDIA's DRA driver makes it for a ComputeDomain",
            f"{_CREATE_DOMAIN}: {found[1]}, or, if there is one, check that the driver's controller is running",
        )
    if found := _UNMAPPED.search(message):
        mapping = f"add {found[1]} to deviceClassMappings of Kueue's configuration"
        reason = f"its pods claim devices of DeviceClass {found[1]}, which Kueue does not count"
        return reason, mapping if found[1] in _RESOURCES else _REQUEST_GPUS
    if INTERFACES in message and not _OTHER.search(message):
        return (
            "its pods claim RDMA interfaces of DRANET, and no flavor that they can use has nodes with them",
            "select nodes of a pool with fabric: dranet, or remove resourceClaims",
        )
    if CHANNELS in message and not _OTHER.search(message):
        return (
            "its pods claim channels of a ComputeDomain, and no flavor that they can use has nodes with channels",
            "select nodes with NVLink between machines, or remove resourceClaims",
        )
    return None
