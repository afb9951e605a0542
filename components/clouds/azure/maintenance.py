"""Maintenance windows of AKS."""

from collections.abc import Mapping
from typing import Final

from pulumi_azure_native.containerservice import MaintenanceWindowArgsDict, ScheduleArgsDict, WeekDay

from gpu_tenancy.model.spec.clouds.azure import AksMaintenance

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
