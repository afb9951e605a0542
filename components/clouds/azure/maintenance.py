"""When AKS upgrades a created cluster, and when its autoscaler removes nodes."""

from collections.abc import Mapping
from typing import Final

from pulumi_azure_native.containerservice import (
    MaintenanceWindowArgsDict,
    ManagedClusterAutoUpgradeProfileArgsDict,
    ManagedClusterPropertiesAutoScalerProfileArgsDict,
    ScheduleArgsDict,
    WeekDay,
)

from gpu_tenancy.model.spec.clouds.azure import AksCreation, AksMaintenance

AUTOSCALER: Final[ManagedClusterPropertiesAutoScalerProfileArgsDict] = {
    "skip_nodes_with_local_storage": "true",
    "skip_nodes_with_system_pods": "true",
    "scale_down_utilization_threshold": "0.5",
}
"""Settings of AKS's autoscaler, which keeps nodes with pods that have local storage, such as an emptyDir. The threshold
is of CPUs and memory: the one of GPUs is upstream's 0.5, and no setting (read 2026-11-24):
https://learn.microsoft.com/azure/aks/cluster-autoscaler#use-the-cluster-autoscaler-profile."""


def upgrade_channels(creation: AksCreation, *, gpus: bool) -> ManagedClusterAutoUpgradeProfileArgsDict:
    """How AKS upgrades Kubernetes and nodes by itself: not at all, or by patches.

    The channels are of the whole cluster, and both drain nodes; SecurityPatch patches nodes live if it can. A change
    between SecurityPatch and None replaces no node, but a change to Unmanaged does (read 2026-11-24):
    https://learn.microsoft.com/azure/aks/auto-upgrade-node-os-image.

    Args:
        creation: settings of the cluster.
        gpus: whether it has GPU pools.
    """
    if gpus and creation.gpu_upgrades == "on-demand":
        return {"upgrade_channel": "none", "node_os_upgrade_channel": "None"}
    return {"upgrade_channel": "patch", "node_os_upgrade_channel": "SecurityPatch"}


UPGRADES: Final = ("aksManagedAutoUpgradeSchedule", "aksManagedNodeOSUpgradeSchedule")
"""Names of the configurations for Kubernetes versions and for patches of the nodes' operating system."""
RELEASES: Final = "default"
"""Name of the configuration for AKS's weekly releases, which has no daily schedule."""


def windows(maintenance: AksMaintenance) -> Mapping[str, MaintenanceWindowArgsDict]:
    """Maintenance windows by the name of their configuration: https://learn.microsoft.com/azure/aks/planned-maintenance."""
    schedule: ScheduleArgsDict = {"daily": {"interval_days": 1}}
    if maintenance.day:
        schedule = {"weekly": {"day_of_week": WeekDay(maintenance.day.capitalize()), "interval_weeks": 1}}
    window: MaintenanceWindowArgsDict = {
        "schedule": schedule,
        "start_time": maintenance.start,
        "duration_hours": maintenance.hours,
        "utc_offset": "+00:00",
    }
    if maintenance.exclusions:
        window["not_allowed_dates"] = [
            {"start": exclusion.start.isoformat(), "end": exclusion.end.isoformat()}
            for exclusion in maintenance.exclusions.values()
        ]
    return dict.fromkeys((*UPGRADES, RELEASES) if maintenance.day else UPGRADES, window)
