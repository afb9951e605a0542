"""Dashboards on machines and jobs: GPU cluster, GPU nodes, Training jobs."""

from typing import Final

from gpu_tenancy.model.observability.dashboards import Dashboard, Variable
from gpu_tenancy.model.observability.expressions import Expressions
from gpu_tenancy.model.observability.panels import ALARM, Panel, Target, graph, stat

_NODE: Final = ', node=~"$node"'
_HELD: Final = 'exported_pod!=""'
_NAMED: Final = "{{namespace}}/{{job_name}}"


def cluster(on: Expressions) -> Dashboard:
    """The dashboard of the whole cluster: nodes, GPUs, utilisation and jobs."""
    allocated = f"sum({on.held()}) or vector(0)"
    return Dashboard(
        "gpu-tenancy-cluster",
        "GPU cluster",
        (
            stat("GPU nodes", f"count({on.capacity()} > 0)"),
            stat(
                "Unhealthy GPU nodes",
                f"count({on.unhealthy()}) or vector(0)",
                colours=ALARM,
                explained=f"Unhealthy: {_UNHEALTHY}",
            ),
            stat("GPUs", f"sum({on.allocatable()})", explained="What pods can have of them."),
            stat("GPUs allocated", allocated),
            stat("GPU utilisation", "avg(DCGM_FI_DEV_GPU_UTIL)", "percent", explained="Mean of all GPUs, idle or not."),
            stat("Workloads waiting", f"sum({on.pending()}) or vector(0)", explained="In Kueue's queues."),
            Panel(
                "GPUs",
                (Target(f"sum({on.allocatable()})", "allocatable", bound=True), Target(allocated, "allocated")),
            ),
            Panel(
                "GPU memory",
                (
                    Target("sum(DCGM_FI_DEV_FB_USED) + sum(DCGM_FI_DEV_FB_FREE)", "of all GPUs", bound=True),
                    Target(
                        f"sum(DCGM_FI_DEV_FB_USED{{{_HELD}}}) + sum(DCGM_FI_DEV_FB_FREE{{{_HELD}}})", "of GPUs in use"
                    ),
                    Target("sum(DCGM_FI_DEV_FB_USED)", "used"),
                ),
                unit="mbytes",
                help="Of GPUs in use: all memory of those that a pod holds, filled or not.",
            ),
            Panel("Training jobs", _jobs_by_state(on), help="Jobs and TrainJobs; gangs of Volcano's are in Quota."),
            graph("GPU utilisation", "avg(DCGM_FI_DEV_GPU_UTIL)", "of all GPUs", "percent"),
        ),
    )


_UNHEALTHY: Final = "not ready, or with GPUs that the device plugin withholds."


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
    """The dashboard of GPU nodes: health, XIDs, allocation and utilisation of each."""
    allocated = f"sum by (node) ({on.held(_NODE)})"
    return Dashboard(
        "gpu-tenancy-nodes",
        "GPU nodes",
        (
            Panel(
                "Nodes",
                _of_each_node(on, allocated),
                "table",
                help=f"Unhealthy: {_UNHEALTHY} XIDs that a program causes are left out.",
                labels=(("node", "Node"),),
                size=(24, 12),
            ),
            graph("GPUs allocated", allocated, "{{node}}", empty="No pod of these nodes holds a GPU."),
            graph("GPU utilisation", on.by_node("DCGM_FI_DEV_GPU_UTIL", "avg", _NODE), "{{node}}", "percent"),
        ),
        (Variable("node", "Node", query=f"label_values(kube_node_status_capacity{{{on.written}}}, node)"),),
    )


def _of_each_node(on: Expressions, allocated: str) -> tuple[Target, ...]:
    capacity = on.capacity(_NODE)
    pods = f'kube_pod_info{{{on.in_teams}, created_by_kind="Job"{_NODE}}}'
    running = 'kube_pod_status_phase{phase="Running"} == 1'
    used, free = (f"({on.by_node(f'DCGM_FI_DEV_FB_{state}', 'sum', _NODE)})" for state in ("USED", "FREE"))
    return (
        Target(
            f"0 * ({on.unhealthy(_NODE)}) + 1 or 0 * {capacity}",
            "State",
            words=((0, "healthy"), (1, "unhealthy")),
            colours=ALARM,
        ),
        Target(f"max by (node) ({on.broken_gpus}) and on (node) {capacity}", "XID", colours=ALARM),
        Target(capacity, "GPUs"),
        Target(on.allocatable(_NODE), "Allocatable"),
        Target(f"{allocated} or 0 * {capacity}", "Allocated"),
        Target(on.by_node("DCGM_FI_DEV_GPU_UTIL", "avg", _NODE), "Utilisation", unit="percent"),
        Target(used, "Memory used", unit="mbytes"),
        Target(f"{used} + {free}", "Memory", unit="mbytes"),
        Target(f"count by (node) ({pods} and on (namespace, pod) {running}) or 0 * {capacity}", "Pods of jobs"),
    )


def training(on: Expressions) -> Dashboard:
    """The dashboard of training jobs: state, GPUs and utilisation of each."""
    team = ', namespace=~"$team"'
    gpus = _of_jobs(on.by_job(f"({on.held(team)})", "sum"))
    util = _of_jobs(on.by_job(on.of_pods("DCGM_FI_DEV_GPU_UTIL", ', exported_namespace=~"$team"'), "avg"))
    memory = _of_jobs(on.by_job(on.of_pods("DCGM_FI_DEV_FB_USED", ', exported_namespace=~"$team"'), "sum"))
    return Dashboard(
        "gpu-tenancy-training",
        "Training jobs",
        (
            Panel(
                "Jobs",
                (
                    Target(_state(), "State", words=_STATES, colours=((None, "text"), (4, "red"))),
                    Target(_of_job("kube_job_status_active"), "Active pods"),
                    Target(_of_job("kube_job_status_failed"), "Failed pods", colours=((None, "text"), (1, "orange"))),
                    Target(gpus, "GPUs"),
                    Target(util, "Utilisation", unit="percent"),
                    Target(memory, "Memory used", unit="mbytes"),
                    Target(
                        f"max by (namespace, job_name) ((time() - kube_job_created{{{_JOB}}})"
                        f" and on (namespace, job_name) ({_marked('status_suspended')}))",
                        "Waits for",
                        unit="s",
                    ),
                ),
                "table",
                help="Waiting: its queue has not admitted it. A job that hardly uses its GPUs keeps others out.",
                labels=(("namespace", "Team"), ("job_name", "Job")),
                size=(24, 12),
            ),
            graph("GPUs", gpus, _NAMED, empty="No job holds a GPU."),
            graph("GPU utilisation", util, _NAMED, "percent", empty="No job holds a GPU."),
            graph("GPU memory used", memory, _NAMED, "mbytes", empty="No job holds a GPU."),
            graph("Failed pods", _of_job("kube_job_status_failed"), _NAMED, empty="No pod of these jobs has failed."),
        ),
        (
            Variable("team", "Team", on.teams),
            Variable("job", "Job", query='label_values(kube_job_created{namespace=~"$team"}, job_name)'),
        ),
    )


_JOB: Final = 'namespace=~"$team", job_name=~"$job"'
_STATES: Final = ((0, "no pod yet"), (1, "waiting"), (2, "running"), (3, "complete"), (4, "failed"))


def _of_job(metric: str) -> str:
    return f"sum by (namespace, job_name) ({metric}{{{_JOB}}})"


def _marked(condition: str) -> str:
    return f'kube_job_{condition}{{{_JOB}, condition="true"}} == 1'


def _state() -> str:
    """The state of a job as a number of `_STATES`."""
    by, active = "max by (namespace, job_name)", f"kube_job_status_active{{{_JOB}}}"
    return (
        f"4 * {by} ({_marked('failed')}) or {by} ({_marked('status_suspended')}) or"
        f" 2 * clamp_max({by} ({active} > 0), 1)"
        f" or 3 * {by} ({_marked('complete')}) or 0 * {by} ({active})"
    )


def _of_jobs(by_job: str) -> str:
    """The expression with the Job's name in the label that kube-state-metrics uses, for the selected jobs only."""
    named = f'label_replace({by_job}, "job_name", "$1", "created_by_name", "($job)")'
    return f"max by (namespace, job_name) ({named}) and on (namespace, job_name) kube_job_created{{{_JOB}}}"
