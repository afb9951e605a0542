"""Maintenance windows of GKE."""

import datetime as dt
from typing import Final

from pulumi_gcp.container import ClusterMaintenancePolicyArgsDict, ClusterMaintenancePolicyMaintenanceExclusionArgsDict

from gpu_tenancy.model.spec.clouds.gcp import GkeExclusion, GkeMaintenance

_FIRST_DAY: Final = dt.date(2026, 1, 1)
"""A day in the past: GKE requires the first window of a recurrence."""
_DAILY_HOURS: Final = 4
"""Length of GKE's daily window, which has no other."""
_SCOPES: Final = {
    "upgrades": "NO_UPGRADES",
    "minor-upgrades": "NO_MINOR_UPGRADES",
    "minor-or-node-upgrades": "NO_MINOR_OR_NODE_UPGRADES",
}


def maintenance_policy(maintenance: GkeMaintenance) -> ClusterMaintenancePolicyArgsDict:
    """Windows and exclusions for upgrades of the control plane and the nodes.

    https://cloud.google.com/kubernetes-engine/docs/concepts/maintenance-windows-and-exclusions
    """
    policy: ClusterMaintenancePolicyArgsDict = {}
    if maintenance.hours == _DAILY_HOURS and not maintenance.days:
        policy["daily_maintenance_window"] = {"start_time": maintenance.start}
    else:
        start = dt.datetime.combine(_FIRST_DAY, dt.time.fromisoformat(maintenance.start))
        days = ",".join(day[:2].upper() for day in maintenance.days)
        policy["recurring_window"] = {
            "start_time": _zulu(start),
            "end_time": _zulu(start + dt.timedelta(hours=maintenance.hours)),
            "recurrence": f"FREQ=WEEKLY;BYDAY={days}" if days else "FREQ=DAILY",
        }
    if maintenance.exclusions:
        policy["maintenance_exclusions"] = [
            _exclusion(name, exclusion) for name, exclusion in maintenance.exclusions.items()
        ]
    return policy


def _exclusion(name: str, exclusion: GkeExclusion) -> ClusterMaintenancePolicyMaintenanceExclusionArgsDict:
    midnight = dt.time()
    args: ClusterMaintenancePolicyMaintenanceExclusionArgsDict = {
        "exclusion_name": name,
        "start_time": _zulu(dt.datetime.combine(exclusion.start, midnight)),
        "exclusion_options": {"scope": _SCOPES[exclusion.scope]},
    }
    if exclusion.end is None:
        args["exclusion_options"] = {
            "scope": _SCOPES[exclusion.scope],
            "end_time_behavior": "UNTIL_END_OF_SUPPORT",
        }
    else:  # The last day counts.
        args["end_time"] = _zulu(dt.datetime.combine(exclusion.end + dt.timedelta(days=1), midnight))
    return args


def _zulu(moment: dt.datetime) -> str:
    """A time in UTC as Google writes it: another format would be a difference at each deployment."""
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
