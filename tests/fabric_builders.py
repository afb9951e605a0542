"""Stacks on each cloud with two machines that have a network between GPUs."""

from typing import Any, Final

from builders import EKS, Data, job, pool, stack, team

TCPXO: Final = [{"network": f"vpc-{index}", "subnetwork": f"sub-{index}"} for index in range(8)]
GKE: Final[Data] = {
    "cloud": "gcp",
    "name": "ml",
    "project": "ml-prod-123",
    "location": "us-central1",
    "fabricNetworks": TCPXO,
}
A3_MEGA: Final = pool("a3-megagpu-8g", fabric=True, zones=["us-central1-a"])
UNWIRED: Final[Data] = {key: value for key, value in GKE.items() if key != "fabricNetworks"}
DRANET: Final = pool("a3-ultragpu-8g", fabric="dranet", zones=["us-central1-b"], capacity="spot")
INFINIBAND: Final = pool("Standard_ND96isr_H100_v5", fabric=True, zones=["1"])
LIMIT: Final = {"h100": {"guaranteed": 0, "limit": 16}}


def wired(cluster: Data = EKS, h100: Data | None = None, pools: Data | None = None, **sections: Any) -> Data:
    """Two machines with a fabric, and a team that can use all of their GPUs."""
    cpus = {"aws": "m7i.8xlarge", "gcp": "n2-standard-32", "azure": "Standard_D32s_v5"}
    own = {"cpu": pool(cpus[cluster["cloud"]], 3), "h100": h100 or pool(fabric=True), **(pools or {})}
    gpus = sections.pop("gpus", LIMIT)
    return stack(cluster=cluster, pools=own, teams={"a": team(gpus=gpus, **sections)})


def with_job(**fields: Any) -> Data:
    """A job of two pods on EKS, with eight H100s each."""
    return wired(training={"fit": job(**{"workers": 2, "gpus": 8, **fields})})
