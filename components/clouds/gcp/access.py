"""Kubeconfigs of GKE clusters, without credentials."""

import json
from typing import TypedDict

from pulumi_gcp.container import outputs


class ClusterAccess(TypedDict):
    """Name, address and CA of a cluster.

    Attributes:
        name: name of the cluster.
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
    """A kubeconfig without credentials: Google's credential plugin gets a token for each use.

    The plugin is `gke-gcloud-auth-plugin`, which uses the credentials of gcloud or of the environment:
    https://cloud.google.com/kubernetes-engine/docs/how-to/cluster-access-for-kubectl.
    """
    name = cluster["name"]
    server = {"server": f"https://{cluster['endpoint']}", "certificate-authority-data": cluster["authority"]}
    helper = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": "gke-gcloud-auth-plugin",
        "installHint": "gcloud components install gke-gcloud-auth-plugin",
        "interactiveMode": "IfAvailable",
        "provideClusterInfo": True,
    }
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": server}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
            "users": [{"name": name, "user": {"exec": helper}}],
        }
    )
