"""What operators look at: Cluster, Nodes, Training jobs, Quota, Serving."""

from collections.abc import Sequence
from dataclasses import dataclass

from model.observability.dashboards import Dashboard, Panel, Target, Variable
from model.observability.expressions import Expressions

_NODE = ', node=~"$node"'
_HOST = '{Hostname=~"$node"}'
_QUEUE = ', cluster_queue=~"$team", flavor=~"$flavor"'
_JOB = 'namespace=~"$team", job_name=~"$job"'
_SHARE = "{{cluster_queue}} {{flavor}} {{resource}}"


@dataclass(frozen=True, slots=True)
class Service:
    """A server, as its page needs it.

    Attributes:
        latency: its metric and the target in seconds; None where it has none.
        per_pod: PromQL of the latency of each pod; None where the metric itself is that.
    """

    team: str
    name: str
    latency: tuple[str, float] | None
    per_pod: str | None = None


def cluster(on: Expressions) -> Dashboard:
    """The fleet at a glance."""
    return Dashboard(
        "gpu-tenancy-cluster",
        "GPU cluster",
        (
            _stat("GPU nodes", f"count({on.capacity()} > 0)"),
            _stat("Unhealthy GPU nodes", f"count({on.unhealthy()}) or vector(0)"),
            _stat("GPUs", f"sum({on.allocatable()})"),
            _stat("GPUs allocated", f"sum({on.held()}) or vector(0)"),
            _stat("GPU utilisation", "avg(DCGM_FI_DEV_GPU_UTIL)", "percent"),
            Panel(
                "GPU memory",
                (
                    Target("sum(DCGM_FI_DEV_FB_USED)", "used"),
                    Target(
                        'sum(DCGM_FI_DEV_FB_USED{exported_pod!=""}) + sum(DCGM_FI_DEV_FB_FREE{exported_pod!=""})',
                        "allocated",
                    ),
                    Target("sum(DCGM_FI_DEV_FB_USED) + sum(DCGM_FI_DEV_FB_FREE)", "there"),
                ),
                unit="mbytes",
                help="Allocated is all memory of GPUs that a pod holds.",
            ),
            Panel("Training jobs", _jobs_by_state(on), help="Jobs and TrainJobs; gangs of Volcano's are in Quota."),
        ),
    )


def _jobs_by_state(on: Expressions) -> tuple[Target, ...]:
    def counted(metric: str) -> str:
        return f'count(kube_job_{metric}{{{on.in_teams}, condition="true"}} == 1) or vector(0)'

    running = f"count(kube_job_status_active{{{on.in_teams}}} > 0) or vector(0)"
    return (
        Target(running, "running"),
        Target(counted("status_suspended"), "waiting"),
        Target(counted("complete"), "complete"),
        Target(counted("failed"), "failed"),
    )


def nodes(on: Expressions) -> Dashboard:
    """The same by node."""
    pods = f'kube_pod_info{{{on.in_teams}, created_by_kind="Job"{_NODE}}}'
    running = 'kube_pod_status_phase{phase="Running"} == 1'
    by_host = "by (Hostname)"
    return Dashboard(
        "gpu-tenancy-nodes",
        "GPU nodes",
        (
            _graph("Unhealthy", on.unhealthy(_NODE), "{{node}}"),
            Panel(
                "GPUs",
                (
                    Target(on.allocatable(_NODE), "{{node}} there"),
                    Target(f"sum by (node) ({on.held(_NODE)})", "{{node}} allocated"),
                ),
            ),
            _graph("GPU utilisation", f"avg {by_host} (DCGM_FI_DEV_GPU_UTIL{_HOST})", "{{Hostname}}", "percent"),
            Panel(
                "GPU memory",
                (
                    Target(f"sum {by_host} (DCGM_FI_DEV_FB_USED{_HOST})", "{{Hostname}} used"),
                    Target(
                        f'sum {by_host} (DCGM_FI_DEV_FB_USED{{exported_pod!="", Hostname=~"$node"}})'
                        f' + sum {by_host} (DCGM_FI_DEV_FB_FREE{{exported_pod!="", Hostname=~"$node"}})',
                        "{{Hostname}} allocated",
                    ),
                ),
                unit="mbytes",
            ),
            _graph("Pods of training jobs", f"count by (node) ({pods} and on (namespace, pod) {running})", "{{node}}"),
        ),
        (Variable("node", "Node", query=f"label_values(kube_node_status_capacity{{{on.written}}}, node)"),),
    )


def training(on: Expressions) -> Dashboard:
    """Each job: does it run, on what, does it use it."""
    by = "by (namespace, job_name)"
    job, made = "{{namespace}}/{{job_name}}", "{{namespace}}/{{created_by_name}}"
    mine = ', namespace=~"$team"'
    util = on.of_pods("DCGM_FI_DEV_GPU_UTIL", ', exported_namespace=~"$team"')
    memory = on.of_pods("DCGM_FI_DEV_FB_USED", ', exported_namespace=~"$team"')
    waits = f'kube_job_status_suspended{{{_JOB}, condition="true"}} == 1'
    return Dashboard(
        "gpu-tenancy-training",
        "Training jobs",
        (
            _graph("Active pods", f"sum {by} (kube_job_status_active{{{_JOB}}})", job),
            _graph("Failed pods", f"sum {by} (kube_job_status_failed{{{_JOB}}})", job),
            _graph(
                "Age of what waits",
                f"(time() - kube_job_created{{{_JOB}}}) and on (namespace, job_name) ({waits})",
                job,
                "s",
            ),
            _graph("GPUs", on.by_job(f"({on.held(mine)})", "sum"), made),
            _graph("GPU utilisation", on.by_job(util, "avg"), made, "percent"),
            _graph("GPU memory used", on.by_job(memory, "sum"), made, "mbytes"),
        ),
        (
            Variable("team", "Team", on.teams),
            Variable("job", "Job", query='label_values(kube_job_created{namespace=~"$team"}, job_name)'),
        ),
    )


def quota(on: Expressions, flavors: Sequence[str]) -> Dashboard:
    """Who is promised what, who has it, who borrows, who waits and why."""
    nominal, used = on.nominal(_QUEUE), on.used(_QUEUE)
    evicted = 'sum by (cluster_queue, reason) (increase(kueue_evicted_workloads_total{cluster_queue=~"$team"}[1h]))'
    waiting = 'max by (cluster_queue, status) (kueue_pending_workloads{cluster_queue=~"$team"})'
    closed = (
        'max by (cluster_queue, status) (kueue_cluster_queue_status{cluster_queue=~"$team", status!="active"}) == 1'
    )
    budget = f'max by (namespace, resource, type) (kube_resourcequota{{{on.budgets}, namespace=~"$team"}})'
    return Dashboard(
        "gpu-tenancy-quota",
        "GPU quota",
        (
            _graph("Minimum", nominal, _SHARE, help="What is guaranteed."),
            _graph("Maximum", on.most(_QUEUE), _SHARE, help="What may be reached; no line where there is no limit."),
            _graph("Used", used, _SHARE),
            _graph("Waiting", waiting, "{{cluster_queue}} {{status}}", help=_WHY),
            _graph("Borrows", f"{used} - {nominal} > 0", _SHARE, help=_BORROWS),
            _graph("Left to borrowers", f"{nominal} - {used} > 0", _SHARE, help=_BORROWS),
            _graph("Pushed back within the hour", evicted, "{{cluster_queue}} {{reason}}"),
            _graph("Queues that admit nothing", closed, "{{cluster_queue}} {{status}}"),
            _graph("Budget of the namespace", budget, "{{namespace}} {{resource}} {{type}}", help=_BUDGET),
            Panel(
                "Gangs",
                tuple(
                    Target(
                        f"max by (queue_name, resource) (volcano_queue_{metric}_scalar_resources{{{on.raw}}}) / 1000",
                        f"{{{{queue_name}}}} {legend}",
                    )
                    for metric, legend in (("deserved", "minimum"), ("capacity", "maximum"), ("allocated", "used"))
                ),
                help="Volcano's queues; it counts GPUs in thousandths.",
            ),
        ),
        (Variable("team", "Team", on.teams), Variable("flavor", "Flavor", tuple(flavors))),
    )


_WHY = (
    "active: waits for its turn. inadmissible: does not fit into what is free now, or never will;"
    " `kubectl describe workload` says which."
)
_BORROWS = (
    "Kueue keeps no pairs: of one flavor and resource, those that borrow use what those beside them leave, and what"
    " nobody is guaranteed."
)
_BUDGET = "A pod beyond `hard` is refused although its queue has admitted it."


def serving(on: Expressions, services: Sequence[Service]) -> Dashboard:
    """Each server: replicas, latency against its target, GPUs."""
    hpa = f'{{{on.in_teams}, namespace=~"$team"}}'
    scaled = "max by (namespace, horizontalpodautoscaler) (kube_horizontalpodautoscaler_{})"
    name = "{{namespace}}/{{horizontalpodautoscaler}}"
    errors = "sum by (scaledObject) (increase(keda_scaler_detail_errors_total[1h])) > 0"
    counts = (
        ("status_current_replicas", "now"),
        ("status_desired_replicas", "wanted"),
        ("spec_min_replicas", "least"),
        ("spec_max_replicas", "most"),
    )
    return Dashboard(
        "gpu-tenancy-serving",
        "Model servers",
        (
            Panel("Replicas", tuple(Target(scaled.format(metric + hpa), f"{name} {word}") for metric, word in counts)),
            _graph("Triggers of KEDA's that fail", errors, "{{scaledObject}}"),
            *(panel for each in services for panel in _of_server(on, each)),
        ),
        (Variable("team", "Team", on.teams),),
    )


def _of_server(on: Expressions, server: Service) -> tuple[Panel, ...]:
    title, pod = (
        f"{server.team}/{server.name}",
        f'pod=~"{server.name}-[^-]+-[^-]+"',
    )  # ReplicaSet and pod add a part each
    own = f', exported_namespace="{server.team}", exported_{pod}'
    held = on.held(f', namespace="{server.team}", {pod}')
    gpus = Panel(
        f"{title}: GPU utilisation",
        (Target(f"avg({on.of_pods('DCGM_FI_DEV_GPU_UTIL', own)})", "utilisation"),),
        unit="percent",
    )
    many = _graph(f"{title}: GPUs", f"sum({held})", "GPUs")
    if server.latency is None:
        return gpus, many
    metric, target = server.latency
    each = server.per_pod or f'{metric}{{namespace="{server.team}", {pod}}}'
    worst = f"max({each})"
    targets = (Target(worst, "slowest pod, p99"), Target(f"vector({target:g})", "target"))
    return Panel(f"{title}: latency", targets, unit="s"), gpus, many


def _stat(title: str, expr: str, unit: str = "short") -> Panel:
    return Panel(title, (Target(expr, ""),), "stat", unit)


def _graph(title: str, expr: str, legend: str, unit: str = "short", help: str = "") -> Panel:  # noqa: A002 - Panel's
    return Panel(title, (Target(expr, legend),), "timeseries", unit, help)
