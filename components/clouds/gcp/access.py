"""Kubeconfigs of GKE clusters, without credentials."""

import json
from typing import TypedDict

from pulumi_gcp.container import outputs

from gpu_tenancy.model.kubeconfig import Server, gke_helper, of_helper


class ClusterAccess(TypedDict):
    """Name, address and CA of a cluster.

    Attributes:
        endpoint: address of its API server, without a scheme.
        authority: its CA certificate, in base64.
    """

    name: str
    endpoint: str
    authority: str


def authority(auth: outputs.ClusterMasterAuth) -> str:
    """The CA certificate of a cluster, in base64; empty until it is created."""
    return auth.cluster_ca_certificate or ""


def kubeconfig(cluster: ClusterAccess) -> str:
    """A kubeconfig without credentials: Google's credential plugin gets a token for each use."""
    server = Server(cluster["name"], f"https://{cluster['endpoint']}", cluster["authority"])
    return json.dumps(of_helper(server, gke_helper()))
