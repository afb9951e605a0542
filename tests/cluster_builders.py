"""Objects that an API server accepts, for tests to break or change one part of."""

from pathlib import Path

import yaml

from gpu_tenancy.base.json import Json, maps_at
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.references import Reference

Manifest = dict[str, Json]


def an_object(api_version: str, kind: str, name: str, namespace: str = "", **content: Json) -> Manifest:
    metadata: Manifest = {"name": name, "labels": {"owner": "tests"}}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **content}


def a_config_map(name: str, namespace: str, **data: Json) -> Manifest:
    return an_object("v1", "ConfigMap", name, namespace, data=dict(data))


def a_namespace(name: str) -> Manifest:
    return an_object("v1", "Namespace", name)


def a_bare_account(name: str, namespace: str) -> Manifest:
    """Sets no field, so that the API server records no field manager."""
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}


def a_job(name: str, namespace: str, image: str, **pod: Json) -> Manifest:
    """A suspended Job; `pod` has more fields of its pods."""
    template: Json = {"spec": {"restartPolicy": "Never", "containers": [{"name": "train", "image": image}], **pod}}
    return an_object("batch/v1", "Job", name, namespace, spec={"suspend": True, "template": template})


def a_definition(group: str, kind: str = "Widget", *, scope: str = "Namespaced", **more: Json) -> Manifest:
    """Defines a kind whose spec has a `size` of at least 1, an immutable `color`, and the fields in `more`."""
    plural = f"{kind.lower()}s"
    spec: Json = {
        "type": "object",
        "properties": {
            "size": {"type": "integer", "minimum": 1},
            "color": {
                "type": "string",
                "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "field is immutable"}],
            },
            **more,
        },
    }
    schema: Json = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    return an_object(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        f"{plural}.{group}",
        spec={
            "group": group,
            "scope": scope,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    )


def created_by(cluster: Cluster, manager: str, manifest: Manifest) -> Manifest:
    """Creates an object as another field manager would, and returns it."""
    live = cluster.create(manifest)
    managed: Json = [{**entry, "manager": manager} for entry in maps_at(live, "metadata", "managedFields")]
    return dict(cluster.patch(Reference.of(manifest), {"metadata": {"managedFields": managed}}))


def live(cluster: Cluster, manifest: Manifest) -> Manifest:
    """The live object; empty if it does not exist."""
    return cluster.get(*Reference.of(manifest)) or {}


def a_kubeconfig(file: Path, cluster: Json, user: Json) -> Path:
    """Writes a kubeconfig with one context, `c`, of one cluster and one user."""
    config: Manifest = {
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    file.write_text(yaml.safe_dump(config))
    return file
