"""Rules for GPU requests of pods, and for GPU sharing."""

from collections.abc import Iterator

from pydantic import Field

from rule_engine import Stack, format_number, rule
from workload_rules.objects import FACTS, SERVING, matches_any
from workload_rules.placement import may_share_node, node_labels
from workload_rules.pods import CONTAINERS, POD_PARTS, Container, Gpus, Pod, TenantGpus, for_tenants


@rule("gpu-request-equals-limit", CONTAINERS)
def gpu_request_equals_limit(container: Container, settings: Gpus) -> Iterator[str]:
    """A container's GPU count must be a whole number, and its request must equal its limit."""
    limits = container.resources.entries("limits")
    requests = container.resources.entries("requests")
    for name in sorted({*limits, *requests}):
        if not settings.is_gpu(name):
            continue
        limit = limits[name].number() if name in limits else None
        request = requests[name].number() if name in requests else None
        if limit is None:
            if request and container.pod.form != "part":
                count = format_number(request)
                yield f"requests {count} {name} without a limit; set limits.{name}: {count}"
        elif request is not None and request != limit:
            requested = format_number(request)
            yield f"requests {requested} {name}, but the limit is {format_number(limit)}; set both to the same number"
        elif limit != limit.to_integral_value():
            yield (
                f"requests {format_number(limit)} {name}, which is not a whole number; set a whole number, or request a"
                " partition"
            )


class Grace(TenantGpus):
    """Maximum termination grace periods of pods with GPUs."""

    jobs: int = Field(600, gt=0)
    """Seconds for pods and jobs, to write a checkpoint."""
    servers: int = Field(3600, gt=0)
    """Seconds for servers, to complete requests."""


@rule("gpu-grace-bounded", POD_PARTS)
@for_tenants
def gpu_grace_bounded(pod: Pod, settings: Grace) -> Iterator[str]:
    """A pod with GPUs must end soon after it is deleted."""
    seconds = pod.spec.number("terminationGracePeriodSeconds")
    maximum = settings.servers if pod.kind in SERVING else settings.jobs
    if seconds is None or seconds <= maximum:
        return
    # A part of a pod is merged with others of its object.
    pods = (pod,) if pod.form == "pod" else pod.resource.parts(POD_PARTS)
    if any(other.gpus(settings) or other.claims for other in pods):
        yield (
            f"has a termination grace period of {format_number(seconds)} s, in which it keeps its GPUs; set"
            f" terminationGracePeriodSeconds: {maximum} or less"
        )


class Sharing(TenantGpus):
    """Namespaces that can share time-sliced GPUs."""

    trusting: dict[str, list[str]] = Field({})
    """Groups of namespaces that trust one another: patterns of namespaces, keyed by a group name of your choice."""
    resources: list[str] = Field(["*.shared"])
    """Resource names of time-sliced GPUs, as patterns."""
    labels: dict[str, list[str]] = Field(FACTS["time_sliced"])
    """Labels of nodes with time-sliced GPUs, each with its values as patterns."""

    def groups(self, namespace: str) -> frozenset[str]:
        """The groups of a namespace."""
        return frozenset(name for name, group in self.trusting.items() if matches_any(namespace, group))

    def trust(self, namespace: str, other_namespace: str) -> bool:
        """Whether two namespaces trust one another."""
        return namespace == other_namespace or not self.groups(namespace).isdisjoint(self.groups(other_namespace))


def _time_sliced_resources(pod: Pod, settings: Sharing) -> set[str]:
    gpus = set(pod.gpus(settings))
    if not gpus:
        return gpus
    chosen = node_labels(pod)
    for label, patterns in settings.labels.items():
        if any(matches_any(value, patterns) for value in chosen.get(label, ())):
            return gpus
    return {name for name in gpus if matches_any(name, settings.resources)}


@rule("time-slicing-trust", POD_PARTS)
@for_tenants
def time_slicing_trust(pod: Pod, settings: Sharing, stack: Stack) -> Iterator[str]:
    """Pods of different namespaces may share time-sliced GPUs only if the namespaces trust one another."""
    names = _time_sliced_resources(pod, settings)
    if not names:
        return

    def stranger(other: Pod) -> bool:
        return (
            not settings.trust(pod.namespace, other.namespace)
            and settings.tenant(other.namespace)
            and bool(names & _time_sliced_resources(other, settings))
            and may_share_node(node_labels(pod), node_labels(other))
        )

    # Pods with the same GPUs and nodes, of namespaces in the same groups, have the same stranger.
    groups = settings.groups(pod.namespace) or pod.namespace
    nodes_of_pod = frozenset(node_labels(pod).items())
    other = stack.once(
        ("time-slicing-trust", id(settings), groups, frozenset(names), nodes_of_pod),
        lambda: stack.first(POD_PARTS, stranger),
    )
    if other is not None:
        yield (
            f"shares time-sliced {', '.join(sorted(names))} with {other.place} without memory isolation; partition"
            " the GPUs with MIG, select other nodes, or list both namespaces under `trusting`"
        )
