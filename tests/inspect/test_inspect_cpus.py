"""A cluster without GPUs: what `usage` and `why` show of its queues."""

from typing import Any

from live_builders import ACTIVE, GPU, Data, job, local_queue, meta, state, workload

from gpu_tenancy.base.amounts import leading_text
from gpu_tenancy.cluster.reading import State
from gpu_tenancy.cluster.target import target_of
from gpu_tenancy.explain.usage import Note, measure
from gpu_tenancy.explain.why import why


def queue(name: str, flavor: str = "general", **used: str) -> Data:
    """A queue with 40 CPUs and 64Gi."""
    lines = [{"name": resource, "nominalQuota": amount} for resource, amount in (("cpu", "40"), ("memory", "64Gi"))]
    reserved = [{"name": resource, "total": amount} for resource, amount in used.items()]
    return {
        "metadata": meta(name),
        "spec": {
            "cohortName": "org",
            "namespaceSelector": {},
            "preemption": {"reclaimWithinCohort": "Any"},
            "resourceGroups": [
                {"coveredResources": ["cpu", "memory"], "flavors": [{"name": flavor, "resources": lines}]}
            ],
        },
        "status": {"conditions": [ACTIVE], "flavorsReservation": [{"name": flavor, "resources": reserved}]},
    }


def cpu_job(name: str, cpu: str = "10", memory: str = "8Gi") -> Data:
    found = job(name)
    requests = {"cpu": cpu, "memory": memory}
    (container,) = found["spec"]["template"]["spec"]["containers"]
    container["resources"] = {"requests": requests, "limits": requests}
    return found


def cluster(**objects: Any) -> State:
    """40 of 40 CPUs are in use, and two jobs are pending."""
    jobs = [workload(cpu_job(name), f"2026-01-0{day}T00:00:00Z") for day, name in enumerate(("first", "second"), 1)]
    return state(
        **{
            "ClusterQueue": [queue("research", cpu="40", memory="32Gi")],
            "LocalQueue": [local_queue("research")],
            "ResourceFlavor": [{"metadata": meta("general"), "spec": {}}],
            "Cohort": [],
            "Node": [],
            "Workload": jobs,
            **objects,
        }
    )


def test_the_total_counts_cpus_and_memory_where_there_are_no_gpus() -> None:
    assert measure(cluster()).total.text == (
        "total cpu: 40 guaranteed, 40 used, 0 borrowed, 20 pending; "
        "memory: 64Gi guaranteed, 32Gi used, 0 borrowed, 16Gi pending; 2 workloads pending (20 CPUs, 16Gi memory)"
    )


def test_quotas_of_cpu_and_memory_are_shown_where_there_are_no_gpus() -> None:
    hard = {"requests.cpu": "80", "requests.memory": "256Gi", "pods": "50"}
    quota = {"metadata": meta("budget", "research"), "status": {"hard": hard, "used": {"requests.cpu": "40"}}}
    found = measure(cluster(ResourceQuota=[quota]))
    assert [line.budget.resource for line in found.budgets] == ["requests.cpu", "requests.memory"]
    assert Note.CPU_QUOTAS_ABRIDGED in found.notes
    assert any("only requests of CPU and memory" in note for note in found.remarks)


def test_a_mixed_cluster_adds_cpus_beside_gpus() -> None:
    gpus = queue("speech", "a100")
    (group,) = gpus["spec"]["resourceGroups"]
    group["coveredResources"].append(GPU)
    group["flavors"][0]["resources"].append({"name": GPU, "nominalQuota": "8"})
    found = measure(cluster(ClusterQueue=[queue("research", cpu="40", memory="32Gi"), gpus]))
    text = found.total.text
    assert text.startswith("total nvidia.com/gpu: 8 guaranteed, 0 used, 0 borrowed, 0 pending; cpu without GPUs: 40 ")
    assert text.endswith("2 workloads pending (20 CPUs, 16Gi memory)")


def test_why_names_the_cpus_of_those_ahead() -> None:
    found = why(target_of(cpu_job("second"), cluster()), cluster())
    assert any("1 workload is ahead of it, requesting 10 CPUs, 8Gi memory: " in line for line in found.lines), found
    assert not any("no resources" in line or "GPU" in line for line in found.lines)
    assert found.waits


def test_amounts_are_gpus_where_there_are_some() -> None:
    assert leading_text({GPU: 8, "cpu": 8000}) == "8 nvidia.com/gpu"
    assert leading_text({"cpu": 1000, "memory": 2**30}) == "1 CPU, 1Gi memory"
    assert leading_text({}) == "no resources"
