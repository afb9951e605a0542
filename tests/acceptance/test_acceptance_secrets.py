"""Secrets and images before a real API server: objects by their definitions, created pods, and the guard."""

import base64
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

import pytest
from acceptance_builders import declared, flat, in_waves, sections_of
from acceptance_guards import Door, Person, gang, in_force, job, job_set, owned, pod, pod_of
from builders import Data, server, stack, team
from builders import job as job_of
from removing import remove

from gpu_tenancy.kube.client import Cluster

TEAM: Final = "secrets-team"
OF_IMAGES: Final = "images-team"
ALLOWED: Final = [
    *("registry.example.com/ml", "*.pkg.dev/ml-prod", "docker.io/library/python", "docker.io/ml", "localhost:5000/x"),
    "localhost/x",
]
TAKEN: Final = (
    "registry.example.com/ml:1",
    "registry.example.com/ml/train:1",
    f"eu-docker.pkg.dev/ml-prod/x@sha256:{'0' * 64}",
    "python:3.12",
    "docker.io/python:3.12",
    "index.docker.io/library/python:3.12",
    "ml/train:1",
    "localhost:5000/x/y:1",
    "localhost/x/y:1",
    f"python@sha256:{'0' * 64}",
)
REFUSED: Final = (
    "registry.example.com/mlx/train:1",
    "registry.example.com:5000/ml/train:1",
    "evil.com/registry.example.com/ml/train:1",
    "eu-docker.pkg.dev/ml-prod-test/x:1",
    "org/python:3.12",
    "localhost:5000/xy:1",
)


def sections() -> Data:
    uses: Data = {
        "env": {"TOKEN": {"secret": "wandb", "key": "TOKEN"}, "POD": {"field": "metadata.name"}, "LEVEL": "info"},
        "envFrom": [{"secret": "s3", "prefix": "S3_"}],
        "files": {"/etc/keys": {"secret": "signing", "items": {"a": "b/c"}}},
    }
    kinds = ("job", "pytorch", "jax", "mpi", "jobset")
    training: Data = {name: job_of(framework=name, gpus=0, **uses) for name in kinds}
    training["mpi"]["command"] = ["mpirun"]
    training["gang"] = job_of(scheduler="volcano", flavor="a100", **uses)
    of_team = team(
        gpus={"h100": {"guaranteed": 8}},
        quota={"cpu": {"cpu": {"guaranteed": 16}}},
        gangs={"a100": {"guaranteed": 1}},
        serving={"api": server(**uses)},
        training=training,
        imagePullSecrets=["hub"],
        secrets={
            "wandb": {"config": {"TOKEN": "wandb"}},
            "s3": {"from": "aws://eu-central-1/ml/s3", "keys": {"ID": "id"}},
            "gcp": {"from": "gcp://example-ml/all"},
            "azure": {"from": "azure://keys/ml-vault/one", "key": "ONE"},
            "hub": {"existing": True},
            "signing": {"existing": True},
        },
    )
    return stack(teams={TEAM: of_team})


@pytest.fixture(scope="module")
def applied(cluster: Cluster) -> Iterator[Cluster]:
    """Each object of the stack is accepted, with strict validation of its fields."""
    waves = in_waves(declared(sections()))
    for manifest in flat(waves):
        cluster.apply(manifest, force=True)
    yield cluster
    remove(cluster, flat(waves))


def found(cluster: Cluster, api: str, kind: str, name: str) -> Any:
    return cast("Any", cluster.get(api, kind, name, TEAM))


def test_external_secrets_accepts_copies_and_stores(applied: Cluster) -> None:
    for store in ("aws-eu-central-1", "gcp-example-ml", "azure-ml-vault"):
        assert found(applied, "external-secrets.io/v1", "SecretStore", store)
    copy = found(applied, "external-secrets.io/v1", "ExternalSecret", "s3")
    # The defaults of the definition are there, and what we set is unchanged.
    assert copy["spec"]["target"]["creationPolicy"] == "Owner"
    assert (
        copy["spec"]["data"][0]["remoteRef"] | {"key": "ml/s3", "property": "id"}
        == copy["spec"]["data"][0]["remoteRef"]
    )


def test_undecrypted_secrets_have_a_placeholder(applied: Cluster) -> None:
    data = found(applied, "v1", "Secret", "wandb")["data"]
    assert base64.b64decode(data["TOKEN"]).decode() == "unread-secret"


def test_pods_of_a_server_refer_to_secrets(applied: Cluster) -> None:
    def pods() -> Any:
        listed = applied.list("v1", "Pod", namespace=TEAM)
        return [
            one for one in cast("list[Any]", listed) if one["metadata"]["labels"]["app.kubernetes.io/name"] == "api"
        ]

    (one, *_) = applied.wait_for(pods, what="pods of the server")
    (container,) = one["spec"]["containers"]
    variables = {variable["name"]: variable for variable in container["env"]}
    assert variables["TOKEN"]["valueFrom"]["secretKeyRef"] == {"name": "wandb", "key": "TOKEN"}
    assert variables["POD"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
    assert container["envFrom"] == [{"prefix": "S3_", "secretRef": {"name": "s3"}}]
    assert one["spec"]["imagePullSecrets"] == [{"name": "hub"}]


def using(image: str) -> Any:
    spec = pod_of(0)
    spec["containers"][0]["image"] = image
    return spec


@pytest.fixture(scope="module")
def person(cluster: Cluster, door: Door) -> Iterator[Person]:
    """A user with all rights in a team's namespace, with the guard of images in force."""
    acting = {"action": "deny", "exempt": ["system:serviceaccounts:images-exempt"]}
    sections = sections_of("local")
    operators = {**sections.get("operators", {}), "fluid": "installed"}
    judged = {**sections, "operators": operators, "guards": acting, "images": {"allowed": ALLOWED}}
    guards = [dict(one.manifest) for one in declared(judged) if one.name == "gpu-tenancy-images"]
    assert len(guards) == 2
    with door.newcomer("carol", "cluster-admin", OF_IMAGES) as carol, in_force(cluster, guards):
        yield carol


def test_the_guard_admits_images_of_allowed_registries_only(person: Person) -> None:
    for image in TAKEN:
        assert not person.refusal(job(OF_IMAGES, None, using(image))), image
    for image in REFUSED:
        words = person.refusal(job(OF_IMAGES, None, using(image)))
        assert f"uses image {image}, whose registry is not allowed; use one of registry.example.com/ml" in words, image
    # Everywhere that a pod has an image, in each kind.
    beside = using("python:3")
    beside["initContainers"] = [{"name": "i", "image": "quay.io/a:1"}]
    volume = {**using("python:3"), "volumes": [{"name": "v", "image": {"reference": "quay.io/a:1"}}]}
    for spec in (beside, volume):
        assert "uses image quay.io/a:1" in person.refusal(pod(OF_IMAGES, None, spec))
    assert "uses image quay.io/a:1" in person.refusal(job_set(OF_IMAGES, None, using("quay.io/a:1")))
    for plugin, words in {
        "--wait-master-image=quay.io/a:1": "uses image quay.io/a:1",
        "-wait-master-image=python:3": "write it as --wait-master-image=IMAGE",
        "--wait-master-image=python:3": "",
    }.items():
        own = gang(OF_IMAGES, None, using("python:3"), plugins={"pytorch": [plugin]})
        later = {**own, "kind": "CronJob", "spec": {"schedule": "@daily", "jobTemplate": {"spec": own["spec"]}}}
        for message in map(person.refusal, (own, later)):
            assert words in message if words else not message


FOREIGN: Final = "quay.io/a:1"


def test_images_are_judged_when_pods_change(person: Person, kept: Callable[..., Any]) -> None:
    old, running = job(OF_IMAGES, None, using(FOREIGN)), kept(pod(OF_IMAGES, None, using("python:3")))
    old["spec"]["suspend"] = True
    kept(old)
    note: Any = {"metadata": {"annotations": {"note": "x"}}}
    assert not person.patch_refusal(old, note)
    assert f"uses image {FOREIGN}" in person.patch_refusal(old, {"spec": {"template": note}})
    for image, words in ((FOREIGN, f"uses image {FOREIGN}"), ("python:3", "")):
        shell = {"spec": {"ephemeralContainers": [{"name": "shell", "image": image}]}}
        message = person.patch_refusal(running, shell, subresource="ephemeralcontainers")
        assert words in message if words else not message


@pytest.mark.parametrize(
    ("home", "words"), [("images-exempt", ""), ("fluid-system", ""), ("volcano-system", f"uses image {FOREIGN}")]
)
def test_images_of_exempt_accounts_are_not_judged(person: Person, door: Door, home: str, words: str) -> None:
    assert person
    manifest = job(OF_IMAGES, None, using(FOREIGN))
    with door.let_in("puller", "cluster-admin", home=home) as puller:
        door.cluster.wait_for(lambda: not puller.refusal(job(OF_IMAGES, None, using("python:3"))), what="rights")
        message = puller.refusal(manifest)
        assert words in message if words else not message
        assert not puller.refusal(owned("batch.volcano.sh/v1alpha1", "Job", manifest))
