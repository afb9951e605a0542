"""Dashboards on guarantees and targets: GPU quota, Model servers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from gpu_tenancy.model.observability.dashboards import Dashboard, Variable
from gpu_tenancy.model.observability.expressions import Expressions
from gpu_tenancy.model.observability.panels import Panel, Target, graph, row

_QUEUE: Final = ', cluster_queue=~"$team", flavor=~"$flavor"'
_OF_QUEUES: Final = '{cluster_queue=~"$team"}'
_TEAM: Final = ("cluster_queue", "Team")
_WAITS: Final = ((None, "text"), (1, "orange"))
_ROOM: Final = ((None, "orange"), (1, "text"))
_LOAN: Final = ((None, "text"), (1, "blue"))


@dataclass(frozen=True, slots=True)
class Service:
    """A server on the dashboard of model servers.

    Attributes:
        latency: the latency metric and its target in seconds; None without a target.
        per_pod: PromQL of the latency of each pod; None if the metric has it.
        scaled: whether an autoscaler sets its replicas.
        grouped: whether a replica is a group of pods on several nodes.
    """

    team: str
    name: str
    latency: tuple[str, float] | None
    per_pod: str | None = None
    scaled: bool = True
    grouped: bool = False

    @property
    def pods(self) -> str:
        """A regular expression of the names of its pods: with parts of ReplicaSet and pod, or of group and worker."""
        return f"{self.name}-[0-9]+(-[0-9]+)?" if self.grouped else f"{self.name}-[^-]+-[^-]+"


def quota(on: Expressions, flavors: Sequence[str]) -> Dashboard:
    """The dashboard of quotas: guarantee, usage, borrowing and pending workloads of each team."""
    noun = on.noun
    model = "GPU model" if noun == "GPUs" else "flavor"
    heading = model[0].upper() + model[1:]
    kind = ("resource", "Resource" if len(on.resources) > 1 else "")
    high = 3 + len(on.teams)
    evicted = f"sum by (cluster_queue, reason) (increase(kueue_evicted_workloads_total{_OF_QUEUES}[1h])) > 0"
    closed = 'cluster_queue=~"$team", status!="active"'
    return Dashboard(
        "gpu-tenancy-quota",
        f"{noun[:-1]} quota",
        (
            Panel("How to read this page", kind="text", help=_read(noun), size=(24, 4)),
            Panel(f"{noun} now", _shares(on), "table", labels=(_TEAM, ("flavor", heading), kind), size=(24, high)),
            Panel(
                "What waits, and why",
                _waiting(on),
                "table",
                help=_why(noun),
                empty="There is no queue of these teams.",
                labels=(_TEAM,),
                size=(12, high),
            ),
            Panel(
                "Budget of the namespace",
                tuple(Target(_budget(on, bound), title) for bound, title in (("hard", "At most"), ("used", "Used"))),
                "table",
                help=_budget_help(model),
                empty="These namespaces have no budget.",
                labels=(("namespace", "Namespace"), ("resource", "Resource")),
                size=(12, high),
            ),
            Panel("$team", _lines(on), help=_LINES, empty=f"No quota of these {model}s.", size=(6, 8), repeat="team"),
            graph(f"{noun} that are waited for", on.wanted(_OF_TEAM), "{{cluster_queue}}"),
            graph(
                "Workloads evicted within the hour",
                evicted,
                "{{cluster_queue}}: {{reason}}",
                explained=_EVICTED,
                empty="None of these teams' workloads was evicted.",
            ),
            graph(
                "Queues that admit nothing",
                f"max by (cluster_queue, status) (kueue_cluster_queue_status{{{closed}}}) == 1",
                "{{cluster_queue}}: {{status}}",
                explained="`kubectl describe clusterqueue` says why.",
                empty="All queues of these teams admit workloads.",
            ),
            *([_gangs(on)] if noun == "GPUs" else []),
        ),
        (Variable("team", "Team", on.teams), Variable("flavor", heading, tuple(flavors))),
    )


def _read(noun: str) -> str:
    asked = "of the model" if noun == "GPUs" else "of the flavor"
    return (
        f"- **Guaranteed**: the team gets these {noun} back whenever it asks, whoever borrowed them."
        " **Limit**: the most that it can reach while others leave theirs; ∞ where there is none.\n"
        "- **In use** above guaranteed is **borrowed**: it goes on until an owner wants its own back, and is then"
        " taken. **Idle** is guaranteed and not in use: others may borrow it, where the team lends.\n"
        f"- A team waits although it has **idle** {noun} {asked} that it asks for: tell the operators. It waits and its"
        " **room**, what is left up to its limit, is 0: it waits for its own workloads."
    )


def _why(noun: str) -> str:
    return (
        "In turn: not tried yet. Do not fit now: no room in what is free, or never any, as for a request larger than"
        f" the limit; `kubectl describe workload` says which. {noun} asked for: by all of them together."
    )


def _budget_help(model: str) -> str:
    return (
        f"Kubernetes' own quota, of all {model}s together: a pod beyond it is refused although its queue admitted it."
    )


_LINES = (
    "Dashed: guaranteed and limit. Kueue keeps no pairs of who borrows from whom: one model's borrowers use its idle."
)
_EVICTED = (
    "Preempted: for another with a higher priority, or for an owner who took its guarantee back. It starts again from"
    " its last checkpoint, when there is room."
)


def _shares(on: Expressions) -> tuple[Target, ...]:
    nominal, used, limit = on.nominal(_QUEUE), on.used(_QUEUE), on.limit(_QUEUE)
    return (
        Target(nominal, "Guaranteed"),
        Target(limit, "Limit"),
        Target(used, "In use"),
        Target(f"clamp_min({used} - {nominal}, 0)", "Borrowed", colours=_LOAN),
        Target(f"clamp_min({nominal} - {used}, 0)", "Idle"),
        Target(f"{limit} - {used}", "Room", colours=_ROOM),
    )


def _waiting(on: Expressions) -> tuple[Target, ...]:
    def having(status: str) -> str:
        picked = f'cluster_queue=~"$team", status="{status}"'
        return f"max by (cluster_queue) (kueue_pending_workloads{{{picked}}})"

    return (
        Target(having("active"), "In turn"),
        Target(having("inadmissible"), "Do not fit now", colours=_WAITS),
        Target(f"sum by (cluster_queue) ({on.wanted(_OF_TEAM)})", f"{on.noun} asked for"),
    )


_OF_TEAM: Final = ', cluster_queue=~"$team"'


def _budget(on: Expressions, bound: str) -> str:
    picked = f'{on.budgets}, namespace=~"$team", type="{bound}"'
    return f"max by (namespace, resource) (kube_resourcequota{{{picked}}})"


def _lines(on: Expressions) -> tuple[Target, ...]:
    model = "{{flavor}}" if len(on.resources) == 1 else "{{flavor}} {{resource}}"
    return (
        Target(on.used(_QUEUE), f"{model} in use"),
        Target(on.nominal(_QUEUE), f"{model} guaranteed", bound=True),
        Target(f"{on.limit(_QUEUE)} < +Inf", f"{model} limit", bound=True),
    )


def _gangs(on: Expressions) -> Panel:
    by, named = "max by (queue_name, resource)", (("deserved", "guaranteed"), ("capacity", "limit"))
    lines = tuple(
        Target(
            f"{by} (volcano_queue_{metric}_scalar_resources{{{on.raw}}}) / 1000",
            f"{{{{queue_name}}}} {word}",
            bound=(metric, word) in named,
        )
        for metric, word in (*named, ("allocated", "in use"))
    )
    return Panel(
        "Gangs",
        lines,
        help="Volcano's queues, whose GPUs are not part of the shares above.",
        empty="Volcano has no queue with GPUs.",
    )


def serving(on: Expressions, services: Sequence[Service]) -> Dashboard:
    """The dashboard of servers: replicas, latency against its target, and GPUs of each."""
    errors = "sum by (exported_namespace, scaledObject) (increase(keda_scaler_detail_errors_total[1h])) > 0"
    table = Panel(
        "Autoscalers",
        tuple(Target(_replicas(metric, on.in_teams), word.capitalize()) for metric, word in _COUNTS),
        "table",
        help="Wanted is what the autoscaler asks for: more than now means that pods start, or have no room.",
        empty="No autoscaler in these teams' namespaces.",
        labels=(("namespace", "Team"), ("horizontalpodautoscaler", "Server")),
        size=(14, 8),
    )
    failing = Panel(
        "Failures of KEDA's triggers within the hour",
        (Target(errors, "{{exported_namespace}}/{{scaledObject}}"),),
        help="A trigger that fails leaves its server with the replicas that it has.",
        empty="None, or KEDA scales nothing here.",
        size=(10, 8),
    )
    return Dashboard(
        "gpu-tenancy-serving",
        "Model servers",
        (table, failing, *(panel for service in services for panel in _of_server(on, service))),
    )


_COUNTS: Final = (
    ("status_current_replicas", "now"),
    ("status_desired_replicas", "wanted"),
    ("spec_min_replicas", "least"),
    ("spec_max_replicas", "most"),
)


def _replicas(metric: str, picked: str) -> str:
    return f"max by (namespace, horizontalpodautoscaler) (kube_horizontalpodautoscaler_{metric}{{{picked}}})"


def _of_server(on: Expressions, server: Service) -> tuple[Panel, ...]:
    pod = f'pod=~"{server.pods}"'
    own = f', exported_namespace="{server.team}", exported_{pod}'
    held = on.held(f', namespace="{server.team}", {pod}')
    gpus = graph(on.noun, f"sum({held})", "held", empty=f"No pod of it holds a {on.noun[:-1]}.")
    used = graph(
        "GPU utilisation",
        f"avg({on.of_pods('DCGM_FI_DEV_GPU_UTIL', own)})",
        "mean",
        "percent",
        empty="No pod of it holds a GPU.",
    )
    scaled = f'namespace="{server.team}", horizontalpodautoscaler="{server.name}"'
    counts = tuple(Target(_replicas(metric, scaled), word, bound="spec" in metric) for metric, word in _COUNTS)
    panels = [gpus, used] if on.noun == "GPUs" else [gpus]
    if server.scaled:
        panels.insert(0, Panel("Replicas", counts, empty="Its autoscaler is not there."))
    if server.latency:
        panels.insert(0, _latency(server.latency, server.per_pod or "", f'namespace="{server.team}", {pod}'))
    wide = 24 // len(panels)
    return (row(f"{server.team}/{server.name}"), *(replace(panel, size=(wide, 8)) for panel in panels))


def _latency(latency: tuple[str, float], per_pod: str, picked: str) -> Panel:
    metric, target = latency
    of_pods = per_pod or f"{metric}{{{picked}}}"
    lines = (Target(f"max({of_pods})", "slowest pod, p99"), Target(f"vector({target:g})", "target", bound=True))
    return Panel("Latency", lines, unit="s", empty="Nothing serves its latency.")
