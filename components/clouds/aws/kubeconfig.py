"""Kubeconfigs of EKS clusters, without credentials."""

import json
from collections.abc import Sequence

from pulumi_aws.eks.outputs import ClusterCertificateAuthority


def certificate(authority: ClusterCertificateAuthority) -> str:
    """The CA certificate of the API server, in base64."""
    return authority.data or ""


def kubeconfig(parts: Sequence[str]) -> str:
    """A kubeconfig without credentials: the AWS CLI creates a token for each use.

    The format is that of `aws eks update-kubeconfig`:
    https://docs.aws.amazon.com/eks/latest/userguide/create-kubeconfig.html

    Args:
        parts: URL of the API server, its CA certificate, name and region of the cluster.
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
