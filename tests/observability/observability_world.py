"""A made-up cluster as series, and the value of every expression of the dashboards, computed by hand."""

from observability_builders import LATENCY

_MODEL = "NVIDIA H100 80GB HBM3"


_PART = {"n3": ', GPU_I_PROFILE="7g.80gb", GPU_I_ID="0"'}


def _dcgm(node: str, gpu: int) -> str:
    """Labels of a GPU: n3's is a partition, and n1 has the older exporter."""
    host = f'{"Hostname" if node == "n1" else "hostname"}="{node}"'
    pod = {
        ("n1", 0): ', exported_namespace="a", exported_pod="train-1"',
        ("n2", 0): ', exported_namespace="b", exported_pod="api-5f-x1"',
    }.get((node, gpu), "")
    return f'{host}, gpu="{gpu}", UUID="GPU-{node}-{gpu}", modelName="{_MODEL}"{_PART.get(node, "")}{pod}'


# What Grafana puts for variables with all chosen: of the teams their names, elsewhere what matches all that is there.
CHOSEN = {"$node": ".+", "$team": "(a|b)", "$flavor": "(h100)", "$job": ".+"}

# Three GPU nodes: n1 whole, n2 with one GPU withheld, n3 not ready; c1 has none. One job runs, one waits, one is
# done, one failed; b serves. In each pair of Kueue's series a second replica says the same. The exporters of n1 and n2
# are of two versions.
WORLD = {
    **{f'kube_node_status_capacity{{node="n{n}", resource="nvidia_com_gpu", unit="integer"}}': 8 for n in (1, 2, 3)},
    'kube_node_status_capacity{node="c1", resource="cpu", unit="core"}': 32,
    'kube_node_status_allocatable{node="n1", resource="nvidia_com_gpu", unit="integer"}': 8,
    'kube_node_status_allocatable{node="n2", resource="nvidia_com_gpu", unit="integer"}': 7,
    'kube_node_status_allocatable{node="n3", resource="nvidia_com_gpu", unit="integer"}': 8,
    **{
        f'kube_node_status_condition{{node="{node}", condition="Ready", status="true"}}': ready
        for node, ready in {"n1": 1, "n2": 1, "n3": 0, "c1": 0}.items()
    },
    'kube_pod_container_resource_requests{namespace="a", pod="train-1", node="n1", resource="nvidia_com_gpu"}': 4,
    'kube_pod_container_resource_requests{namespace="a", pod="old-1", node="n1", resource="nvidia_com_gpu"}': 8,
    'kube_pod_container_resource_requests{namespace="a", pod="wait-1", node="", resource="nvidia_com_gpu"}': 8,
    'kube_pod_container_resource_requests{namespace="b", pod="api-5f-x1", node="n2", resource="nvidia_com_gpu"}': 2,
    'kube_pod_container_resource_requests{namespace="b", pod="api-5f-x1", node="n2", resource="cpu"}': 64,
    'kube_pod_status_phase{namespace="a", pod="train-1", phase="Running"}': 1,
    'kube_pod_status_phase{namespace="a", pod="train-1", phase="Pending"}': 0,
    'kube_pod_status_phase{namespace="a", pod="old-1", phase="Running"}': 0,
    'kube_pod_status_phase{namespace="a", pod="old-1", phase="Succeeded"}': 1,
    'kube_pod_status_phase{namespace="a", pod="wait-1", phase="Pending"}': 1,
    'kube_pod_status_phase{namespace="b", pod="api-5f-x1", phase="Running"}': 1,
    # Two pods of 4 GPUs that failed after an hour: one in the last minutes, one long ago.
    **{
        f'{name}{{namespace="a", pod="{pod}"{more}}}': value
        for pod, end in (("broken-1", 5250), ("broken-2", 4000))
        for name, more, value in (
            ("kube_pod_container_resource_requests", ', node="n1", resource="nvidia_com_gpu"', 4),
            ("kube_pod_status_phase", ', phase="Failed"', 1),
            ("kube_pod_start_time", "", end - 3600),
            ("kube_pod_completion_time", "", end),
        )
    },
    'kube_pod_info{namespace="a", pod="train-1", node="n1", created_by_kind="Job", created_by_name="train"}': 1,
    'kube_pod_info{namespace="a", pod="old-1", node="n1", created_by_kind="Job", created_by_name="old"}': 1,
    'kube_pod_info{namespace="b", pod="api-5f-x1", node="n2", created_by_kind="ReplicaSet"}': 1,
    **{
        f"DCGM_FI_DEV_{field}{{{_dcgm(node, gpu)}}}": value
        for (node, gpu), values in {
            ("n1", 0): (80, 30000, 50000, 79, 61),
            ("n1", 1): (0, 0, 80000, 31, 33),
            ("n2", 0): (40, 10000, 70000, 0, 50),
        }.items()
        for field, value in zip(("GPU_UTIL", "FB_USED", "FB_FREE", "XID_ERRORS", "GPU_TEMP"), values, strict=True)
    },
    # The other GPUs of n1, and a partition of n3.
    **{
        f"DCGM_FI_DEV_{field}{{{_dcgm(node, gpu)}}}": value
        for node, gpu, used in (*(("n1", gpu, 0) for gpu in range(2, 8)), ("n3", 0, 5000))
        for field, value in (("FB_USED", used), ("FB_FREE", 80000 - used))
    },
    **{f'kube_node_info{{node="n{n}", internal_ip="10.0.0.{n}"}}': 1 for n in (1, 2, 3)},
    'kube_node_role{node="n1", role="trainer"}': 1,
    'kube_job_owner{namespace="a", job_name="train", owner_kind="JobSet", owner_name="train"}': 1,
    'kube_job_owner{namespace="a", job_name="bad"}': 1,
    'kube_job_status_start_time{namespace="a", job_name="train"}': 1000,
    'kube_job_status_start_time{namespace="a", job_name="old"}': 0,
    'kube_job_status_completion_time{namespace="a", job_name="old"}': 3600,
    'kube_job_created{namespace="a", job_name="train"}': 0,
    'kube_job_created{namespace="a", job_name="wait"}': 600,
    'kube_job_status_active{namespace="a", job_name="train"}': 2,
    'kube_job_status_active{namespace="a", job_name="wait"}': 0,
    'kube_job_status_active{namespace="kube-system", job_name="clean"}': 1,
    'kube_job_status_suspended{namespace="a", job_name="train", condition="true"}': 0,
    'kube_job_status_suspended{namespace="a", job_name="wait", condition="true"}': 1,
    'kube_job_complete{namespace="a", job_name="old", condition="true"}': 1,
    'kube_job_failed{namespace="a", job_name="bad", condition="true"}': 1,
    'kube_job_status_failed{namespace="a", job_name="bad", reason="BackoffLimitExceeded"}': 3,
    **{
        f'kueue_cluster_queue_{name}{{cohort="org", cluster_queue="{queue}", flavor="h100",'
        f' resource="nvidia.com/gpu", replica_role="{role}"}}': value
        for role in ("leader", "follower")
        for queue, values in {"a": (8, 4, 11, "Inf"), "b": (4, 0, 2, "Inf")}.items()
        for name, value in zip(
            ("nominal_quota", "borrowing_limit", "resource_usage", "lending_limit"), values, strict=True
        )
    },
    'kueue_cohort_subtree_quota{cohort="org", flavor="h100", resource="nvidia.com/gpu", replica_role="leader"}': 14,
    'kueue_cohort_subtree_quota{cohort="lab", flavor="h100", resource="nvidia.com/gpu", replica_role="leader"}': 8,
    **{
        f'kueue_cluster_queue_{name}{{cluster_queue="a", flavor="h100", resource="{asked}"}}': value
        for asked, values in {"cpu": (99, 1, 50), "memory": (1024, 0, 512)}.items()
        for name, value in zip(("nominal_quota", "borrowing_limit", "resource_usage"), values, strict=True)
    },
    'kueue_cohort_subtree_resource_reservations{cohort="org", flavor="h100", resource="nvidia.com/gpu"}': 13,
    'kueue_admitted_active_workloads{cluster_queue="a", replica_role="leader"}': 1,
    'kueue_admitted_active_workloads{cluster_queue="b", replica_role="leader"}': 1,
    'kueue_finished_workloads{cluster_queue="a", replica_role="leader"}': 5,
    **{
        f'kueue_cluster_queue_resource_pending{{cluster_queue="a", resource="{asked}", replica_role="{role}"}}': value
        for role in ("leader", "follower")
        for asked, value in {"nvidia.com/gpu": 24, "cpu": 200, "memory": 2048}.items()
    },
    'kueue_pending_workloads{cluster_queue="a", status="active", replica_role="leader"}': 2,
    'kueue_pending_workloads{cluster_queue="a", status="inadmissible", replica_role="leader"}': 1,
    'kueue_evicted_workloads_total{cluster_queue="a", reason="Preempted", replica_role="leader"}': "0+1x120",
    'kueue_preempted_workloads_total{preempting_cluster_queue="b", reason="InCohortReclamation"}': "0+1x120",
    **{
        f'gpu_tenancy:{name}_seconds_bucket{{cluster_queue="a"{more}, le="{bound}"}}': count
        for name, more, counts in (
            ("guaranteed_wait", "", {"10": 0, "20": 1, "40": 2, "+Inf": 2}),
            ("release", "", {"20": 0, "40": 1, "80": 2, "+Inf": 2}),
            ("wait", ', priority_class="production"', {"320": 0, "640": 2, "+Inf": 2}),
        )
        for bound, count in counts.items()
    },
    'gpu_tenancy:admissions{level="guarantee", cluster_queue="a"}': 2,
    'gpu_tenancy:admissions_late{level="guarantee", cluster_queue="a"}': 0.5,
    'kueue_cluster_queue_status{cluster_queue="a", status="active", replica_role="leader"}': 1,
    'kueue_cluster_queue_status{cluster_queue="a", status="pending", replica_role="leader"}': 0,
    'kueue_cluster_queue_status{cluster_queue="b", status="pending", replica_role="leader"}': 1,
    'kube_resourcequota{namespace="a", resource="requests.nvidia.com/gpu", type="hard"}': 12,
    'kube_resourcequota{namespace="a", resource="requests.nvidia.com/gpu", type="used"}': 9,
    'kube_resourcequota{namespace="a", resource="requests.cpu", type="hard"}': 64,
    'volcano_queue_deserved_scalar_resources{queue_name="a-h100", resource="nvidia.com/gpu"}': 4000,
    'volcano_queue_capacity_scalar_resources{queue_name="a-h100", resource="nvidia.com/gpu"}': 8000,
    'volcano_queue_allocated_scalar_resources{queue_name="a-h100", resource="nvidia.com/gpu"}': 3000,
    **{
        f'kube_horizontalpodautoscaler_{name}{{namespace="b", horizontalpodautoscaler="api"}}': value
        for name, value in {
            "status_current_replicas": 3,
            "status_desired_replicas": 4,
            "spec_min_replicas": 1,
            "spec_max_replicas": 5,
        }.items()
    },
    'keda_scaler_detail_errors_total{exported_namespace="b", scaledObject="api", scaler="prometheus"}': "0+1x120",
    f'{LATENCY}{{namespace="b", pod="api-5f-x1"}}': 0.08,
    f'{LATENCY}{{namespace="b", pod="api-5f-x2"}}': 0.12,
    f'{LATENCY}{{namespace="b", pod="api-two-5f-x2"}}': 9,
}


def _share(queue: str) -> str:
    return f'{{cluster_queue="{queue}", flavor="h100", resource="nvidia.com/gpu"}}'


def _hpa(value: float) -> dict[str, float]:
    return {'{namespace="b", horizontalpodautoscaler="api"}': value}


def _gang(value: float) -> dict[str, float]:
    return {'{queue_name="a-h100", resource="nvidia.com/gpu"}': value}


def _job(name: str) -> str:
    return f'{{namespace="a", job_name="{name}"}}'


def _nodes(*values: float) -> dict[str, float]:
    return {f'{{node="n{number}"}}': value for number, value in enumerate(values, start=1)}


def _gpu(node: str, gpu: int) -> str:
    labels = _dcgm(node, gpu).replace("Hostname", "node").replace("hostname", "node")
    return "{" + labels.replace(', GPU_I_PROFILE="7g.80gb"', "") + "}"


def _idle() -> dict[str, float]:
    return {_gpu("n1", gpu): 0 for gpu in range(2, 8)}


def _cohort(name: str) -> str:
    return f'{{cohort="{name}", flavor="h100", resource="nvidia.com/gpu"}}'


_TRAINS = '{namespace="a", pod="train-1", created_by_kind="Job", created_by_name="train", node="n1"}'
_SERVES = '{namespace="b", pod="api-5f-x1", created_by_kind="ReplicaSet", node="n2"}'


def _queues(a: float, b: float) -> dict[str, float]:
    return {_share("a"): a, _share("b"): b}


# pyrefly: ignore[bad-assignment]
ANSWERS: dict[str, dict[str, float]] = {
    "cluster/GPU nodes/A": {"{}": 3},
    "cluster/Unhealthy GPU nodes/A": {"{}": 2},
    "cluster/Nodes in use/A": {"{}": 2},
    "cluster/GPU memory used/A": {"{}": 5.625},
    "cluster/GPU memory allocated/A": {"{}": 20},
    "cluster/GPUs/A": {"{}": 23},
    "cluster/GPUs/B": {"{}": 6},
    "cluster/GPUs allocated/A": {"{}": 6},
    "cluster/GPU utilisation/A": {"{}": 40},
    "cluster/Workloads waiting/A": {"{}": 3},
    **{
        f"cluster/GPU memory/{letter}": {"{}": value}
        for letter, value in {"A": 800000, "B": 160000, "C": 45000}.items()
    },
    **{f"cluster/Workloads/{letter}": {"{}": value} for letter, value in zip("ABCD", (2, 3, 5, 1), strict=True)},
    "nodes/Nodes/A": {
        '{node="n1", internal_ip="10.0.0.1", role="trainer"}': 0,
        '{node="n2", internal_ip="10.0.0.2"}': 1,
        '{node="n3", internal_ip="10.0.0.3"}': 1,
    },
    "nodes/Nodes/B": _nodes(79),
    "nodes/Nodes/C": _nodes(0, 1, 2),
    "nodes/Nodes/D": _nodes(8, 8, 8),
    "nodes/Nodes/E": _nodes(8, 7, 8),
    "nodes/Nodes/F": _nodes(4, 2, 0),
    "nodes/Nodes/G": _nodes(40, 40),
    "nodes/Nodes/H": _nodes(30000, 10000, 5000),
    "nodes/Nodes/I": _nodes(80000, 80000),
    "nodes/Nodes/J": _nodes(640000, 80000, 80000),
    **{
        f"nodes/{panel}": {
            _gpu("n1", 0): first,
            _gpu("n1", 1): 0,
            **_idle(),
            _gpu("n2", 0): second,
            _gpu("n3", 0): last,
        }
        for panel, first, second, last in (
            ("Each GPU/A", 30000, 10000, 5000),
            ("Each GPU/B", 37.5, 12.5, 6.25),
            ("Memory used of each GPU/A", 30000, 10000, 5000),
        )
    },
    **{
        f"nodes/{panel}": {_gpu("n1", 0): first, _gpu("n1", 1): second, _gpu("n2", 0): third}
        for panel, first, second, third in (
            ("Each GPU/C", 80, 0, 40),
            ("Each GPU/D", 61, 33, 50),
            ("Each GPU/E", 79, 31, 0),
            ("Duty cycle of each GPU/A", 80, 0, 40),
        )
    },
    "nodes/GPUs allocated/A": _nodes(4, 2),
    "training/Jobs/A": {
        _job("train").replace("}", ', owner_kind="JobSet"}'): 2,
        _job("wait"): 1,
        _job("old"): 3,
        _job("bad"): 4,
    },
    "training/Jobs/B": {_job("train"): 1000000, _job("old"): 0},
    "training/Jobs/C": {_job("train"): 4400, _job("old"): 3600},
    "training/Jobs/D": {_job("train"): 2, _job("wait"): 0},
    "training/Jobs/E": {_job("bad"): 3},
    "training/Jobs/F": {_job("train"): 4},
    "training/Jobs/G": {_job("train"): 80},
    "training/Jobs/H": {_job("train"): 30000},
    "training/Jobs/I": {_job("train"): 80000},
    "training/Jobs/J": {_job("wait"): 4800},
    **{
        f"training/{panel}": {_TRAINS: first, _SERVES: second}
        for panel, first, second in (
            ("Each instance/A", 4, 2),
            ("Each instance/B", 80, 40),
            ("Each instance/C", 30000, 10000),
            ("Each instance/D", 37.5, 12.5),
            ("Duty cycle of each instance/A", 80, 40),
            ("GPU memory used of each instance/A", 30000, 10000),
        )
    },
    "training/GPUs/A": {_job("train"): 4},
    "training/GPU utilisation/A": {_job("train"): 80},
    "training/GPU memory used/A": {_job("train"): 30000},
    "training/Failed pods/A": {_job("bad"): 3},
    "quota/GPUs now/A": _queues(8, 4),
    "quota/GPUs now/B": _queues(12, 4),
    "quota/GPUs now/C": _queues(11, 2),
    "quota/GPUs now/D": _queues(3, 0),
    "quota/GPUs now/E": _queues(0, 2),
    "quota/GPUs now/F": _queues(1, 2),
    **{
        f"quota/{panel} of the same queues/{letter}": {
            f'{{cluster_queue="a", flavor="h100", resource="{asked}"}}': value
        }
        for panel, asked, values in (("CPUs", "cpu", (99, 100, 50, 50)), ("Memory", "memory", (1024, 1024, 512, 512)))
        for letter, value in zip("ABCD", values, strict=True)
    },
    "quota/Cohorts/A": {_cohort("org"): 14, _cohort("lab"): 8},
    "quota/Cohorts/B": {_cohort("org"): 13},
    "quota/Cohorts/C": {_cohort("org"): 1, _cohort("lab"): 8},
    "quota/Pending workloads/A": {'{cluster_queue="a"}': 2},
    "quota/Pending workloads/B": {'{cluster_queue="a"}': 1},
    "quota/Pending workloads/C": {'{cluster_queue="a"}': 24},
    "quota/Pending workloads/D": {'{cluster_queue="a"}': 200},
    "quota/Pending workloads/E": {'{cluster_queue="a"}': 2048},
    "quota/Budget of the namespace/A": {'{namespace="a", resource="requests.nvidia.com/gpu"}': 12},
    "quota/Budget of the namespace/B": {'{namespace="a", resource="requests.nvidia.com/gpu"}': 9},
    "quota/$team/A": _queues(11, 2),
    "quota/$team/B": _queues(8, 4),
    "quota/$team/C": _queues(12, 4),
    "quota/Pending GPUs/A": {'{cluster_queue="a", resource="nvidia.com/gpu"}': 24},
    "quota/Workloads evicted within the hour/A": {'{cluster_queue="a", reason="Preempted"}': 60},
    "quota/Preemptions in 30 days/A": {'{cluster_queue="a"}': 90},
    "quota/Preemptions in 30 days/B": {'{preempting_cluster_queue="b", reason="InCohortReclamation"}': 90},
    **{
        f"quota/{panel}/{letter}": {f'{{cluster_queue="a"{more}}}': value}
        for panel, more, values in (
            ("Guarantees given back", "", (20, 38, 40, 75)),
            ("Preempted workloads", "", (40, 76, 80)),
            ("Waiting by class and team", ', priority_class="production"', (480, 624, 640, 182)),
        )
        for letter, value in zip("ABCD", values, strict=False)
    },
    "quota/Queues that admit nothing/A": {'{cluster_queue="b", status="pending"}': 1},
    **{f"quota/Gangs/{letter}": _gang(value) for letter, value in {"A": 4, "B": 8, "C": 3}.items()},
    **{
        f"serving/{panel}/{letter}": _hpa(value)
        for panel in ("Autoscalers", "Replicas")
        for letter, value in {"A": 3, "B": 4, "C": 1, "D": 5}.items()
    },
    "serving/Failures of KEDA's triggers within the hour/A": {'{exported_namespace="b", scaledObject="api"}': 60},
    "serving/Latency/A": {"{}": 0.12},
    "serving/Latency/B": {"{}": 0.1},
    "serving/GPU utilisation/A": {"{}": 40},
    "serving/GPUs/A": {"{}": 2},
}

# What the recording rules say at the same moment. Nobody is guaranteed 2 of the 14; a borrows 3, so 1 is of b's idle 2.
RECORDED: dict[str, dict[str, float]] = {
    "existing": {"": 24},
    "guaranteed": _queues(8, 4),
    "used": _queues(11, 2),
    "idle": _queues(0, 2),
    "borrowed": _queues(3, 0),
    "lent": _queues(0, 1),
    "unused": {'{namespace="b"}': 1},
    "failed": {'{namespace="a"}': 4 * 3600 / 300},
    "of_job": {
        '{namespace="a", created_by_kind="Job", created_by_name="train"}': 4,
        '{namespace="b", created_by_kind="ReplicaSet", created_by_name=""}': 2,
    },
}
