"""Subjects of rules: node pools, node configurations and clusters of all clouds, and Karpenter objects."""

from collections.abc import Iterator
from typing import Final

from cloud_rules import aws, aws_nodes, azure, gcp, karpenter, tokens
from cloud_rules.pools import Cluster, MachineSource, NodePool, Nodes
from rule_engine import Resource, Subject

_POOLS: Final = {
    tokens.EKS_POOL: aws.groups,
    tokens.ASG: aws.groups,
    tokens.NATIVE_EKS_POOL: aws.groups,
    tokens.NATIVE_ASG: aws.groups,
    tokens.KARPENTER_POOL: karpenter.pools,
    tokens.GKE_POOL: gcp.pools,
    tokens.GKE_CLUSTER: gcp.pools,
    tokens.AKS_POOL: azure.pools,
    tokens.AKS_CLUSTER: azure.pools,
}
_NODES: Final = {
    tokens.EKS_POOL: aws_nodes.nodes,
    tokens.LAUNCH_TEMPLATE: aws_nodes.nodes,
    tokens.NATIVE_EKS_POOL: aws_nodes.nodes,
    tokens.NATIVE_LAUNCH_TEMPLATE: aws_nodes.nodes,
    tokens.KARPENTER_CLASS: aws_nodes.nodes,
    tokens.GKE_POOL: gcp.nodes,
    tokens.GKE_CLUSTER: gcp.nodes,
}
_CLUSTERS: Final = {
    tokens.EKS_CLUSTER: aws.EksCluster,
    tokens.NATIVE_EKS_CLUSTER: aws.EksCluster,
    tokens.GKE_CLUSTER: gcp.GkeCluster,
    tokens.AKS_CLUSTER: azure.AksCluster,
}
_WHOLE: Final = (*_CLUSTERS, tokens.EKS_POOL, tokens.NATIVE_EKS_POOL, tokens.GKE_POOL, tokens.AKS_POOL)
EVALUATED: Final = frozenset({*_POOLS, *_NODES, *_CLUSTERS})
"""Types that rules evaluate."""
_PROTECTABLE: Final = (*_WHOLE, *tokens.ASGS)
_TAGGED: Final = (*_WHOLE, tokens.KARPENTER_CLASS)


def _pools(resource: Resource) -> Iterator[NodePool]:
    yield from _POOLS[tokens.token(resource.type)](resource)


def _machine_sources(resource: Resource) -> Iterator[MachineSource]:
    yield from aws_nodes.TEMPLATES.find(resource) if aws_nodes.TEMPLATES.selects(resource) else _pools(resource)


def _nodes(resource: Resource) -> Iterator[Nodes]:
    yield from _NODES[tokens.token(resource.type)](resource)


def _clusters(resource: Resource) -> Iterator[Cluster]:
    # A resource that a program only reads has no inputs to check.
    if resource.props.value:
        yield _CLUSTERS[tokens.token(resource.type)](resource, resource.props)


def _cluster_or_pool(resource: Resource) -> Iterator[Resource]:
    if resource.props.value and (tokens.token(resource.type) not in tokens.ASGS or any(_pools(resource))):
        yield resource


POOLS: Final = Subject("node pools", tokens.of_types(*_POOLS), _pools)
MACHINE_SOURCES: Final = Subject(
    "node pools and launch templates", tokens.of_types(*_POOLS, *tokens.LAUNCH_TEMPLATES), _machine_sources
)
NODES: Final = Subject("node configurations", tokens.of_types(*_NODES), _nodes)
CLUSTERS: Final = Subject("clusters", tokens.of_types(*_CLUSTERS), _clusters)
PROTECTABLE: Final = Subject("clusters and node pools", tokens.of_types(*_PROTECTABLE), _cluster_or_pool)
TAGGED: Final = Subject("clusters, node pools and node classes", tokens.of_types(*_TAGGED), _cluster_or_pool)
