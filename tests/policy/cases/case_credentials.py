"""Cases for `workload_rules.credentials`."""

from typing import Final

from policy_builders import GONE, Break, Case, manifest

from workload_rules import credentials

JOB: Final = manifest("""
apiVersion: batch/v1
kind: Job
metadata: {name: nightly, namespace: ml-research}
spec:
  template:
    spec:
      containers:
      - name: train
        image: registry.example.com/ml/train:3.0.1
        args: [--tokenizer=gpt2, "--key=$(TOKEN)"]
        env:
        - {name: TOKEN, valueFrom: {secretKeyRef: {name: wandb, key: TOKEN}}}
        - {name: WANDB_API_KEY, value: dryrun}
""")
TRAIN_JOB: Final = manifest("""
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: finetune, namespace: ml-research}
spec:
  trainer:
    env: [{name: LEVEL, value: info}]
""")
_ENV: Final = "job: spec.template.spec.containers.0.env"
_VALUE: Final = f"{_ENV}.1.value"
_ARGUMENT: Final = "job: spec.template.spec.containers.0.args.0"
_TRAIN: Final = "Job ml-research/nightly, container train"
_OF_TRAINER: Final = "train: spec.trainer.env.0.value"
_USE: Final = "use valueFrom.secretKeyRef"

CASES: Final = (
    Case(
        name="credentials in clear text",
        rule=credentials.no_clear_credentials,
        given={"job": JOB, "train": TRAIN_JOB},
        also=[
            (_VALUE, GONE),
            (_VALUE, "/run/secrets/key"),
            (_VALUE, "offline"),
            (f"{_ENV}.1", {"name": "COMMIT", "value": "0123456789abcdef0123456789abcdef01234567"}),
            (_ARGUMENT, "https://example.com:8443/a@b"),
            (_OF_TRAINER, "postgres://ml:$(PASSWORD)@db/ml"),
        ],
        breaks=[
            Break(
                _VALUE,
                "0123456789abcdef0123456789abcdef01234567",
                (f"{_TRAIN}: variable WANDB_API_KEY looks like a credential (value of WANDB_API_KEY); {_USE}"),
            ),
            Break(
                _VALUE,
                "hf_" + "aB" * 17,
                f"{_TRAIN}: variable WANDB_API_KEY looks like a credential (Hugging Face token); {_USE}",
            ),
            Break(
                _ARGUMENT,
                "--key=AKIA" + "A" * 16,
                (f"{_TRAIN}: args[0] looks like a credential (AWS access key); put it in a Secret, and use a variable"),
            ),
            Break(
                "job: spec.template.spec.containers.0.command",
                ["train", "--key=AKIA" + "A" * 16],
                f"{_TRAIN}: command[1] looks like a credential (AWS access key); put it in a Secret, and use a"
                " variable",
            ),
            Break(
                _OF_TRAINER,
                "postgres://ml:hunter2@db/ml",
                (
                    "TrainJob ml-research/finetune, container trainer: variable LEVEL looks like a credential (password"
                    f" in a URL); {_USE}"
                ),
            ),
        ],
        unknown={_VALUE: _TRAIN},
    ),
)
