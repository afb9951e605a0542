"""The table of resources is what the API server serves with the definitions that stacks have objects of."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from gpu_tenancy.access.resources import TABLE
from gpu_tenancy.base.json import text_at
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.request import DISCOVERY, Request
from gpu_tenancy.kube.transport import Transport
from gpu_tenancy.model.yaml import read_table

ADDED = {"metrics.k8s.io"}
"""Groups that the API server serves only while another server runs."""
OF_ONESELF = {"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"}


def written() -> dict[str, dict[str, Any]]:
    """Scope, kind, short names and subresources of each resource of the table, by group."""
    return {
        row["group"]: {
            plural: (scope, kind, set(short), set(parts))
            for scope in ("cluster", "namespaced")
            for plural, (kind, short, parts) in row.get(scope, {}).items()
        }
        for row in read_table(TABLE)
    }


def served(platform: Platform) -> dict[str, dict[str, Any]]:
    """The same of an API server, in all of a group's versions."""
    found: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    transport = Transport(platform.kubeconfig, None, 2)
    for root in ("/api", "/apis"):
        answer = json.loads(transport.send(Request("GET", root, accept=DISCOVERY)))
        for group in answer["items"]:
            name = group["metadata"].get("name", "")
            for plural, row in rows(group):
                _, _, _, parts = found[name].setdefault(plural, row)
                parts |= row[3]
    return found


def rows(group: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for version in group["versions"]:
        for resource in version["resources"]:
            if resource["resource"] not in OF_ONESELF:
                scope = "namespaced" if resource["scope"] == "Namespaced" else "cluster"
                parts = {part["subresource"] for part in resource.get("subresources", ())}
                yield (
                    resource["resource"],
                    (scope, resource["responseKind"]["kind"], set(resource.get("shortNames", ())), parts),
                )


@pytest.mark.usefixtures("cluster")
def test_the_table_has_every_resource_of_its_groups_as_the_api_server_serves_it(platform: Platform) -> None:
    table, real = written(), served(platform)
    assert {group: real.get(group) for group in table if group not in ADDED} == {
        group: resources for group, resources in table.items() if group not in ADDED
    }


def test_groups_of_kubernetes_that_the_table_leaves_out_are_of_the_control_plane(
    cluster: Cluster, platform: Platform
) -> None:
    definitions = cluster.list("apiextensions.k8s.io/v1", "CustomResourceDefinition", metadata_only=True)
    of_operators = {text_at(one, "metadata", "name").partition(".")[2] for one in definitions}
    left_out = served(platform).keys() - written().keys() - of_operators
    assert left_out == {"apiregistration.k8s.io", "flowcontrol.apiserver.k8s.io"}
