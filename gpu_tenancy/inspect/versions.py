"""Objects of versions of an API before the one that this program reads, as that one has them.

What changed from v1beta1 of Kueue to v1beta2, of what this program reads:
https://github.com/kubernetes-sigs/kueue/tree/v0.19.2/apis/kueue/v1beta1 (`*_conversion.go`). Cohorts of v1alpha1 named
their parent `parent`.
"""

from typing import Final

from gpu_tenancy.base.json import Json, map_at
from gpu_tenancy.kube.client import Manifest

_RENAMED: Final = {"ClusterQueue": ("cohort", "cohortName"), "Cohort": ("parent", "parentName")}
"""The field of a spec that has another name in v1beta2."""
_MAY_STOP: Final = {"Borrow": "MayStopSearch", "Preempt": "MayStopSearch"}


def current(manifest: Manifest, kind: str) -> Manifest:
    """An object of an earlier version of Kueue as v1beta2 has it; any other object unchanged."""
    if kind not in _RENAMED:
        return manifest
    old, new = _RENAMED[kind]
    spec = map_at(manifest, "spec")
    if old in spec:
        spec.setdefault(new, spec.pop(old))
    if fungibility := map_at(spec, "flavorFungibility"):
        spec["flavorFungibility"] = {key: _choice(value) for key, value in fungibility.items()}
    return {**manifest, "spec": spec}


def _choice(value: Json) -> Json:
    return _MAY_STOP.get(value, value) if isinstance(value, str) else value
