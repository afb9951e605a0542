"""The order in which workloads are submitted, so that two runs of `tenancy local up` end alike."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from gpu_tenancy.base.json import text_at
from gpu_tenancy.engine.objects import KubernetesObject
from gpu_tenancy.model.names import QUEUE_LABEL


def in_turns(waves: Iterable[Iterable[KubernetesObject]]) -> Iterator[list[KubernetesObject]]:
    """Splits waves so that the workloads of a queue follow one another; those of different queues stay together.

    Kueue admits workloads of the same priority in the order in which they were created, and objects of a wave are
    created at the same time.
    """
    for wave in waves:
        before = Counter[tuple[str, str]]()
        turns = defaultdict[int, list[KubernetesObject]](list)
        for item in wave:
            queue = item.namespace, text_at(item.manifest, "metadata", "labels", QUEUE_LABEL)
            turns[before[queue]].append(item)
            before[queue] += bool(queue[1])
        yield from turns.values()
