"""How kubectl and Pulumi reach an EKS cluster."""

import json
from collections.abc import Sequence

from pulumi_aws.eks.outputs import ClusterCertificateAuthority


def certificate(authority: ClusterCertificateAuthority) -> str:
    """The certificate, in base64, by which a client knows the API server."""
    return authority.data or ""


def kubeconfig(parts: Sequence[str]) -> str:
    """A kubeconfig whose token the AWS CLI makes anew at each use, so that no credential is in it.

    The format is that of `aws eks update-kubeconfig`:
    https://docs.aws.amazon.com/eks/latest/userguide/create-kubeconfig.html

    Args:
        parts: URL of the API server, its certificate, name and region of the cluster.
    """
    endpoint, authority, name, region = parts
    token = ["--region", region, "eks", "get-token", "--cluster-name", name, "--output", "json"]
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "aws", "args": token}}
    cluster = {"server": endpoint, "certificate-authority-data": authority}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        }
    )
