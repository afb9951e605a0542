"""Quota of a ClusterQueue for pods: flavors to use, and amounts to release first."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum, auto
from typing import Final

from gpu_tenancy.base.json import maps_at, text_at, texts_at
from gpu_tenancy.base.quantity import CLAIMED, CPU, amount_text, ordered
from gpu_tenancy.cluster.cluster_queues import Hold
from gpu_tenancy.cluster.nodes import suits_node, untolerated
from gpu_tenancy.cluster.pods import Manifest, name_of
from gpu_tenancy.cluster.reading import Verdict
from gpu_tenancy.cluster.references import claimed
from gpu_tenancy.cluster.workloads import PodSet, at_most, is_counted
from gpu_tenancy.kueue import ClusterQueue, FlavorResource, Policy, Quotas
from gpu_tenancy.kueue.api import UNCONSTRAINED
from gpu_tenancy.model.names import HOLD

# Fix for pods that need a topology annotation.
STATE_PLACE: Final = f'add the annotation {UNCONSTRAINED}: "true" to the pod template'


class Source(IntEnum):
    """Where the quota for a request comes from, the easiest first."""

    NOMINAL = auto()  # unused nominal quota of the queue
    BORROWED = auto()  # unused quota of other queues
    RECLAIMED = auto()  # nominal quota that other queues borrow; Kueue preempts to reclaim it
    OTHERS = auto()  # quota that other queues have to release
    OWN_QUEUE = auto()  # quota that workloads of the same queue have to release, since it is at its limit
    NEVER = auto()  # the request exceeds the queue's limit

    @property
    def verdict(self) -> Verdict:
        """Whether the request fits now, later or never."""
        if self is Source.NEVER:
            return "never"
        return "now" if self <= Source.BORROWED else "later"


@dataclass(frozen=True, slots=True)
class QuotaRequest:
    """Request for one resource of one flavor, in base units."""

    flavor: str
    resource: str
    requested: int  # includes the pods judged before
    nominal: int
    used: int
    available: int  # usable now
    limit: int  # usable if other queues use nothing
    source: Source

    @property
    def missing(self) -> int:
        """Amount to release first."""
        return max(0, self.requested - self.available)

    @property
    def borrows(self) -> bool:
        """Whether the queue would use more than nominal quota."""
        return self.used + self.requested > self.nominal

    @property
    def noun(self) -> str:
        """Noun for amounts: `a100 GPUs`, `CPUs of flavor a100`."""
        if self.resource.endswith("/gpu"):
            return f"{self.flavor} GPUs"
        return f"{'CPUs' if self.resource == CPU else self.resource} of flavor {self.flavor}"

    @property
    def state(self) -> str:
        """Usage of the limit: `20 of 32 a100 GPUs in use, 16 requested`."""
        amounts = f"{self.text_of(self.used)} of {self.text_of(self.limit)} {self.noun} in use"
        return amounts if self.used >= self.limit else f"{amounts}, {self.text_of(self.requested)} requested"

    @property
    def numbers(self) -> str:
        """Requested, missing or available, and guaranteed amounts."""
        state = f"{self.text_of(self.missing)} missing" if self.missing else f"{self.text_of(self.available)} available"
        return f"{self._head}, {state} ({self._guarantee}; {self._limit})"

    @property
    def text(self) -> str:
        """The request, and when it fits."""
        missing, guarantee = self.text_of(self.missing), self._guarantee
        match self.source:
            case Source.NOMINAL:
                when = f"fits now ({guarantee})"
            case Source.BORROWED:
                borrowed = self.text_of(min(self.requested, self.used + self.requested - self.nominal))
                total = self.text_of(self.available)
                when = f"fits now by borrowing {borrowed} ({guarantee}; {total} available in total)"
            case Source.RECLAIMED:
                when = f"fits after reclaiming {missing} that other queues borrowed ({guarantee})"
            case Source.OTHERS:
                when = f"fits when other queues release {missing} ({guarantee}; {self._limit})"
            case Source.OWN_QUEUE:
                when = f"fits when workloads of its own queue end ({guarantee}; {self._limit})"
            case Source.NEVER:
                when = f"exceeds the limit of {self.text_of(self.limit)}"
        if self.source is Source.NEVER and self.resource in CLAIMED:
            return f"nodes of flavor {self.flavor} have no {claimed(self.resource)}"
        return f"{self._head}, {when}"

    @property
    def advice(self) -> str:
        """The text, with the fix if the request exceeds the limit."""
        never = self.source is Source.NEVER and self.resource not in CLAIMED
        return f"{self.text}; {at_most(self.text_of(self.limit) if self.limit else '')}" if never else self.text

    def text_of(self, amount: int) -> str:
        """An amount with its unit."""
        return amount_text(self.resource, amount)

    @property
    def _head(self) -> str:
        return f"{self.flavor} {self.resource}: {self.text_of(self.requested)} requested"

    @property
    def _guarantee(self) -> str:
        return f"guaranteed {self.text_of(self.nominal)}, unused {self.text_of(max(0, self.nominal - self.used))}"

    @property
    def _limit(self) -> str:
        return f"limit {self.text_of(self.limit)}, used {self.text_of(self.used)}"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a flavor cannot be used for pods, or why a queue cannot admit them."""

    text: str
    fix: str = ""  # change to the pod template
    decisive: bool = False  # the flavor's limit is high enough, so this refusal alone excludes it
    held: str = ""  # the flavor, if held for maintenance

    @property
    def advice(self) -> str:
        """The reason, with the fix if there is one."""
        return f"{self.text}; {self.fix}" if self.fix else self.text


@dataclass(frozen=True, slots=True)
class Offer:
    """Quota of a queue for one pod set: requests to usable flavors, and refusals of other flavors."""

    pods: PodSet
    requests: tuple[QuotaRequest, ...]
    refused: tuple[Refusal, ...]

    @property
    def held(self) -> Refusal | None:
        """The refusal of a held flavor that could admit the pods otherwise."""
        return next((refusal for refusal in self.refused if refusal.held and not self.requests), None)

    @property
    def source(self) -> Source:
        """The hardest source of all requests."""
        if not self.requests:
            return Source.NEVER if self.refused else Source.NOMINAL
        return max(request.source for request in self.requests)


def judge_queue(
    quotas: Quotas, queue: ClusterQueue, flavors: Sequence[Manifest], sets: Iterable[PodSet]
) -> list[Offer]:
    """Judges pod sets that start together."""
    assumed: dict[FlavorResource, int] = {}
    offers: list[Offer] = []
    by_name = {name_of(flavor): flavor for flavor in flavors}
    for pods in sets:
        offer = _offer(quotas, queue, by_name, pods, assumed)
        offers.append(offer)
        for request in offer.requests:
            assumed[request.flavor, request.resource] = request.requested
    borrows = any(request.borrows for offer in offers for request in offer.requests)
    if not borrows or queue.preemption.borrow is not None:
        return offers
    # A workload that must borrow anything preempts nobody, not even for what it would not have to borrow.
    without_reclaim = {Source.RECLAIMED: Source.OTHERS}
    for index, offer in enumerate(offers):
        requests = (replace(one, source=without_reclaim.get(one.source, one.source)) for one in offer.requests)
        offers[index] = replace(offer, requests=tuple(requests))
    return offers


def _offer(
    quotas: Quotas,
    queue: ClusterQueue,
    flavors: Mapping[str, Manifest],
    pods: PodSet,
    assumed: Mapping[FlavorResource, int],
) -> Offer:
    def hardness(requests: Sequence[QuotaRequest]) -> tuple[int, float]:
        """Kueue takes the first flavor that fits, even if it borrows. If none fits, the largest part explains best."""
        hardest = max(Source.NOMINAL if request.source is Source.BORROWED else request.source for request in requests)
        part = min(request.limit / request.requested for request in requests)
        return hardest, -part if hardest is Source.NEVER else 0

    wanted = {name: value for name, value in {**pods.total, "pods": pods.count}.items() if value}
    requests: list[QuotaRequest] = []
    refused: list[Refusal] = []
    of_queue = [flavor.flavor for group in queue.groups for flavor in group.flavors]
    for group in queue.groups:
        asked = {name: wanted[name] for name in ordered(group.covered) if name in wanted}
        if not asked:
            continue
        choices: list[list[QuotaRequest]] = []
        for flavor in group.flavors:
            lines = (((flavor.flavor, name), value) for name, value in asked.items())
            choice = [_request(quotas, queue, line, value + assumed.get(line, 0)) for line, value in lines]
            if refusal := unfit(flavor.flavor, flavors, pods, of_queue):
                refused.append(replace(refusal, decisive=all(request.source is not Source.NEVER for request in choice)))
            else:
                choices.append(choice)
        best = min(choices, key=hardness, default=list[QuotaRequest]())
        # A flavor that has the quota, and that the pods cannot use, explains more than one that lacks it.
        lacks = any(request.source is Source.NEVER for request in best)
        deciding = tuple(refusal for refusal in refused if refusal.decisive)
        if not best or (lacks and deciding):
            return Offer(pods, (), deciding or tuple(refused))
        requests += best
    covered = {name for group in queue.groups for name in group.covered}
    uncovered = [name for name in ordered(wanted.keys() - {"pods"} - covered) if is_counted(name, covered)]
    for name in uncovered:
        lacks = f"has nodes with {claimed(name)}" if name in CLAIMED else f"covers {name}"
        text = f"no flavor of queue {queue.name} {lacks}, so Kueue never admits the workload"
        refused.append(Refusal(text, decisive=True))
    return Offer(pods, () if uncovered else tuple(requests), tuple(refused))


def _request(quotas: Quotas, queue: ClusterQueue, line: FlavorResource, requested: int) -> QuotaRequest:
    name = queue.name
    nominal, used = quotas.nominal(name, line), quotas.usage(name, line)
    available, limit = quotas.available(name, line), quotas.potential_available(name, line)
    if requested > limit:
        source = Source.NEVER
    elif requested <= available:
        source = Source.NOMINAL if used + requested <= nominal else Source.BORROWED
    elif used + requested <= nominal:
        source = Source.OTHERS if queue.preemption.reclaim is Policy.NEVER else Source.RECLAIMED
    else:
        source = Source.OWN_QUEUE if used + requested > limit else Source.OTHERS
    return QuotaRequest(*line, requested, nominal, used, available, limit, source)


def unfit(name: str, flavors: Mapping[str, Manifest], pods: PodSet, of_queue: Collection[str]) -> Refusal | None:
    """Why a flavor cannot be used for pods; None if it can, or if it is not in the readable `flavors`."""
    flavor = flavors.get(name)
    if flavor is None:
        return None
    own = texts_at(flavor, "spec", "nodeLabels")
    if not suits_node(pods.spec, own, keys=own):
        labels = ", ".join(f"{key}: {value}" for key, value in own.items())
        fix = f"use the labels of the flavor in the pod's node selector or affinity: {labels}"
        return Refusal(f"flavor {name}: does not match the pod's node selector or affinity", fix)
    taint = untolerated(pods.spec, maps_at(flavor, "spec", "nodeTaints"), maps_at(flavor, "spec", "tolerations"))
    if taint and taint.startswith(f"{HOLD}=") and (hold := Hold.of({**flavor, "kind": "ResourceFlavor"})):
        return Refusal(f"flavor {name} is {hold.text}", hold.fix, held=name)
    if taint:
        key, _, effect = taint.rpartition(":")
        toleration = f"tolerations: [{{key: {key.partition('=')[0]}, operator: Exists, effect: {effect}}}]"
        fix = f"add to the pod template: {toleration}"
        return Refusal(f"flavor {name}: the pod does not tolerate the taint {taint}", fix)
    return _misplaced(name, flavors, pods, of_queue)


def _misplaced(name: str, flavors: Mapping[str, Manifest], pods: PodSet, of_queue: Collection[str]) -> Refusal | None:
    # Pods need no annotation if all flavors of the queue have a topology: `checkPodSetAndFlavorMatchForTAS` in
    # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/flavorassigner/tas_flavorassigner.go
    has = bool(text_at(flavors[name], "spec", "topologyName"))
    if has == pods.placed:
        return None
    if pods.placed:
        return Refusal(f"flavor {name}: it has no topology, and an annotation of the pods requires one")
    mixed = any(other in flavors and not text_at(flavors[other], "spec", "topologyName") for other in of_queue)
    why = "it has a topology, other flavors of the queue have none, and the pods do not state their place"
    return Refusal(f"flavor {name}: {why}", STATE_PLACE) if mixed else None
