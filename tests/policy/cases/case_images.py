"""Cases for `workload_rules.images`."""

from typing import Final

from policy_builders import GONE, Break, Case, manifest

from workload_rules import images

DIGEST: Final = f"sha256:{'0123456789abcdef' * 4}"
JOB: Final = manifest(f"""
apiVersion: batch/v1
kind: Job
metadata: {{name: nightly, namespace: ml-research}}
spec:
  template:
    spec:
      containers:
      - {{name: train, image: "registry.example.com/ml/train:3.0.1@{DIGEST}"}}
      - {{name: sidecar, image: "registry.example.com/ml/logs@{DIGEST}"}}
      volumes:
      - {{name: scratch, emptyDir: {{}}}}
      - {{name: model, image: {{reference: "registry.example.com/ml/model:1@{DIGEST}"}}}}
""")
TRAIN_JOB: Final = manifest("""
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: finetune, namespace: ml-research}
spec:
  trainer: {image: registry.example.com/ml/train:3.0.1}
""")
_TRAIN: Final = "Job ml-research/nightly, container train"
_VOLUME: Final = "Job ml-research/nightly, volume model"
_IMAGE: Final = "job: spec.template.spec.containers.0.image"
_REFERENCE: Final = "job: spec.template.spec.volumes.1.image.reference"
_NONE: Final = "is not a valid image name; use registry/path:tag"


def _untagged(name: str) -> Break:
    return Break(
        _IMAGE, name, (f"{_TRAIN}: {name} has no tag, so the latest image is used; set a version tag or a digest")
    )


def _nothing(name: str) -> Break:
    return Break(_IMAGE, name, f"{_TRAIN}: {name} {_NONE}")


def _foreign(name: str, registry: str) -> Break:
    approved = "registry.example.com/ml, *.pkg.dev/ml-prod, docker.io/library"
    return Break(_IMAGE, name, f"{_TRAIN}: {name} is from {registry}, which is not approved; use one of {approved}")


CASES: Final = (
    Case(
        name="pinned versions",
        rule=images.image_pinned,
        given={"job": JOB, "train": TRAIN_JOB},
        also=[
            (_IMAGE, "nginx:1.29"),
            (_IMAGE, "localhost:5000/train:3"),
            (_IMAGE, "localhost/train:3"),
            (_IMAGE, "registry.example.com:5000/ml/train__cpu--x/a.b:3.0.1-rc.1_x"),
            (_IMAGE, "[2001:db8::1]:5000/train:3"),
            (_IMAGE, f"registry.example.com/ml/train:latest@{DIGEST}"),
            (_IMAGE, GONE),
            ("train: spec.trainer.image", GONE),
            (
                "train",
                manifest("""
apiVersion: v1
kind: Pod
metadata: {name: proxy, namespace: kube-system}
spec:
  containers: [{name: proxy, image: proxy}]
"""),
            ),
        ],
        breaks=[
            _untagged("nginx"),
            _untagged("registry.example.com:5000/ml/train"),
            _untagged("localhost/train"),
            Break(
                _IMAGE,
                "registry.example.com/ml/train:latest",
                f"{_TRAIN}: registry.example.com/ml/train:latest has a mutable tag; set a version tag or a digest",
            ),
            Break(
                _REFERENCE,
                "registry.example.com/ml/model",
                f"{_VOLUME}: registry.example.com/ml/model has no tag, so the latest image is used; set a version"
                " tag or a digest",
            ),
            Break(
                "train: spec.trainer.image",
                "train:latest",
                "TrainJob ml-research/finetune, container trainer: train:latest has a mutable tag; set a version"
                " tag or a digest",
            ),
            _nothing("registry.example.com/ml/train:"),
            _nothing("registry.example.com/ml/train:3 "),
            _nothing("registry.example.com/ML/train:3"),
            _nothing("registry.example.com/ml//train:3"),
            _nothing("registry_.example.com/ml/train:3"),
            _nothing("https://registry.example.com/ml/train:3"),
            _nothing("registry.example.com/ml/train@sha256:0123"),
            _nothing("registry.example.com/ml/train@"),
            _nothing(":3"),
        ],
        unknown={_IMAGE: _TRAIN, _REFERENCE: _VOLUME},
    ),
    Case(
        name="digests, and mutable tags in settings",
        rule=images.image_pinned,
        given={"job": JOB},
        settings={"digests": True, "mutable": ["latest", "nightly-*"]},
        breaks=[
            Break(
                _IMAGE,
                "registry.example.com/ml/train:3.0.1",
                f"{_TRAIN}: registry.example.com/ml/train:3.0.1 has no digest; add the digest from the registry"
                " (@sha256:…)",
            ),
            Break(
                _IMAGE,
                "train:nightly-cuda",
                f"{_TRAIN}: train:nightly-cuda has a mutable tag; set a version tag or a digest",
            ),
        ],
    ),
    Case(
        name="approved registries",
        rule=images.image_registries,
        given={"job": JOB, "train": TRAIN_JOB},
        settings={"registries": ["registry.example.com/ml", "*.pkg.dev/ml-prod", "docker.io/library"]},
        also=[
            (_IMAGE, "us-docker.pkg.dev/ml-prod/images/train:3"),
            (_IMAGE, "busybox"),
            (_IMAGE, "index.docker.io/library/busybox:1"),
            (_IMAGE, "docker.io/busybox:1"),
            (_IMAGE, "registry.example.com/ml:3"),
        ],
        breaks=[
            _foreign("registry.example.com/ml-other/train:3", "registry.example.com"),
            _foreign("registry.example.com:5000/ml/train:3", "registry.example.com:5000"),
            _foreign("registry.example.com.attacker.example/ml/train:3", "registry.example.com.attacker.example"),
            _foreign("us-docker.pkg.dev/ml-prod-evil/train:3", "us-docker.pkg.dev"),
            _foreign("attacker.example/a.pkg.dev/ml-prod/train:3", "attacker.example"),
            _foreign("ml/train:3", "docker.io"),
            _nothing("registry.example.com/ml/train:3@x"),
            Break(
                _REFERENCE,
                "quay.io/ml/model:1",
                f"{_VOLUME}: quay.io/ml/model:1 is from quay.io, which is not approved; use one of"
                " registry.example.com/ml, *.pkg.dev/ml-prod, docker.io/library",
            ),
        ],
        unknown={_IMAGE: _TRAIN},
    ),
    Case(
        name="no approved registries in settings",
        rule=images.image_registries,
        given={"job": JOB},
        also=[(_IMAGE, "attacker.example/train")],
    ),
)
