"""Helm releases in kube-system."""

from collections.abc import Mapping

import pulumi
from pulumi_kubernetes.helm.v3 import Release, RepositoryOptsArgsDict

from gpu_tenancy.model.catalogue.releases import cloud_charts

NAMESPACE = "kube-system"
_SECONDS = 600


def release(name: str, chart: str, values: Mapping[str, object], opts: pulumi.ResourceOptions) -> Release:
    """A release of a chart of the catalogue. Pulumi waits until it is ready; a failed release is rolled back.

    Custom resource definitions are not taken from a chart's `crds` folder, which Helm installs once and never updates.
    """
    row = cloud_charts()[chart]
    repository: RepositoryOptsArgsDict | None = {"repo": row.repository} if row.repository else None
    return Release(
        name,
        name=chart,
        chart=row.reference,
        version=row.version,
        repository_opts=repository,
        namespace=NAMESPACE,
        values=values,
        skip_crds=True,
        atomic=True,
        timeout=_SECONDS,
        opts=opts,
    )
