"""How the program reaches a GKE cluster: by the caller's own Google credential, of which nothing is kept."""

import json
from typing import TypedDict

from pulumi_gcp.container import outputs


class Reached(TypedDict):
    """What a cluster says of itself.

    Attributes:
        endpoint: address of its API server, without a scheme.
        authority: certificate of its authority, base64.
    """

    name: str
    endpoint: str
    authority: str


def authority(auth: outputs.ClusterMasterAuth) -> str:
    """The certificate of a cluster's authority, base64; empty before the cloud has made one."""
    return auth.cluster_ca_certificate or ""


def kubeconfig(cluster: Reached) -> str:
    """A kubeconfig that asks Google's credential helper at each use, so that no token is in it.

    The helper is `gke-gcloud-auth-plugin`, which takes the credentials of gcloud or of the environment:
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
