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


CASES: Final = (
    Case(
        name="pinned versions",
        rule=images.image_pinned,
        given={"job": JOB, "train": TRAIN_JOB},
        also=[
            (_IMAGE, "nginx:1.29"),
            (_IMAGE, "localhost:5000/train:3"),
            (_IMAGE, "localhost/train:3"),
            (_IMAGE, "INTRANET/train:3"),
            (_IMAGE, "my_team/train:3"),
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
)
