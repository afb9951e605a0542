"""Helm values of External Secrets, which copies secrets from the clouds' secret managers."""

from typing import Final

from gpu_tenancy.model.plan.gpu_operator import Values
from gpu_tenancy.model.plan.operators.needs import there
from gpu_tenancy.model.spec import Stack

_UNUSED: Final = ("ClusterStore", "ClusterExternalSecret", "ClusterPushSecret", "ClusterGenerator", "PushSecret")
"""Kinds that the controller does not handle: objects of the cluster could read for all teams, and pushing writes."""


def external_secrets_values(stack: Stack) -> Values:
    """Values of External Secrets: the stores of teams only, which tenants cannot create, and no writing to a manager.

    The chart gives who may edit a namespace the right to create its objects, by aggregation, unless it is turned off.
    Its CRDs are templates, which Helm would delete with the release:
    https://github.com/external-secrets/external-secrets/blob/v2.9.0/deploy/charts/external-secrets/values.yaml
    """
    return {
        "installCRDs": True,
        "crds": {"annotations": {"helm.sh/resource-policy": "keep"}},
        **{f"process{kind}": False for kind in _UNUSED},
        "rbac": {"aggregateToAdmin": False, "aggregateToEdit": False},
        "serviceMonitor": {"enabled": there(stack, "prometheus")},
    }
