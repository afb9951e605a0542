"""Jobs in files with the keys of a stack: what is submitted, what is refused, and that the same text is valid there."""

import json
from pathlib import Path

import pytest
from builders import errors, stack, team
from live_builders import Data, state

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.problems import StackError
from gpu_tenancy.jobs.job_files import read_job
from gpu_tenancy.jobs.submitting import Wish, job_of
from gpu_tenancy.model.source import read_file
from gpu_tenancy.model.yaml import read_yaml

JOB = """\
nightly:
  image: registry.example.com/ml/train:3.0.1
  framework: pytorch
  flavor: h100
  workers: 2
  gpus: 4
  cpu: 8
  memory: 64Gi
  command: [torchrun]
  args: [train.py]
  env: {STEPS: "100", TOKEN: {secret: tracking, key: TOKEN}}
  volumes: {checkpoints: /checkpoints}
  priority: ml-high
  deadline: 90m
"""


def read(text: str, folder: Path) -> Wish:
    file = folder / "job.yaml"
    file.write_text(text, encoding="utf-8")
    return read_job(file, "a")


def refused(text: str, folder: Path) -> str:
    with pytest.raises((StackError, ConsoleError)) as error:
        read(text, folder)
    return str(error.value).replace(f"{folder}/", "")


def test_a_job_of_a_file_is_one_of_options_and_is_valid_in_a_stack(tmp_path: Path) -> None:
    assert read(JOB, tmp_path) == Wish(
        "registry.example.com/ml/train:3.0.1",
        ("torchrun",),
        "nightly",
        4,
        2,
        "h100",
        "pytorch",
        "ml-high",
        5400,
        "8",
        "64Gi",
        {"STEPS": "100"},
        {"TOKEN": ("tracking", "TOKEN")},
        {"checkpoints": "/checkpoints"},
        args=("train.py",),
    )
    content = read_yaml(tmp_path / "job.yaml", "job.yaml", instead="")
    owner = team(
        gpus={"h100": {"guaranteed": 8}},
        storage={"checkpoints": {"size": "1Gi", "mode": "shared", "storageClass": "efs"}},
        training=content.data,
    )
    sections = stack(teams={"a": owner}, priorities={"ml-high": 1000}, operators={"trainer": "installed"})
    assert errors(sections) == []


def test_arguments_are_those_of_the_container_or_of_the_entrypoint_of_ray(tmp_path: Path) -> None:
    small = "j: {image: 'i:1', gpus: 0, command: [python], args: [train.py, --steps, '1']}"
    made: Data = job_of(read(small, tmp_path), "research", state())
    (container,) = made["spec"]["template"]["spec"]["containers"]
    assert (container["command"], container["args"]) == (["python"], ["train.py", "--steps", "1"])
    ray = small.replace("gpus: 0", "gpus: 1, framework: ray")
    made = job_of(read(ray, tmp_path), "research", state())
    assert made["spec"]["entrypoint"] == "python train.py --steps 1"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "j:\n  image: i:1\n  gpu: 1\n",
            "job.yaml:3: teams.a.training.j.gpu: unknown key 'gpu' (did you mean 'gpus'?); use one of: ",
        ),
        ("j:\n  gpus: 1\n", "job.yaml:1: teams.a.training.j.image: required key is missing; add it: "),
        (
            "j:\n  image: i:1\n  gang: true\n",
            "job.yaml:3: teams.a.training.j.gang: is not a key of jobs that you submit; remove it, or add the job",
        ),
        (
            "j:\n  image: i:1\n  retries: 1\n  framework: jax\n",
            "job.yaml:3: teams.a.training.j.retries: is not a key of jobs that you submit with framework: jax; remove",
        ),
        (
            "j:\n  image: i:1\n  framework: jobset\n",
            "job.yaml:3: teams.a.training.j.framework: jobset is not a kind of ",
        ),
        (
            "j:\n  image: i:1\n  framework: mpi\n  command: [mpirun]\n",
            "job.yaml:3: teams.a.training.j.framework: mpi is not a kind of jobs that you submit: a TrainJob sets",
        ),
        ("j:\n  image: i:1\n  workers: {min: 1, max: 2}\n", "job.yaml:3: teams.a.training.j.workers: sets min and max"),
        (
            "j:\n  image: i:1\n  env:\n    N: {field: metadata.name}\n",
            "job.yaml:4: teams.a.training.j.env.N: is neither a text nor a key of a Secret",
        ),
        ("j: {image: 'i:1'}\nk: {image: 'i:1'}\n", "job.yaml: has 2 jobs; write one, as NAME: KEYS"),
        ("{}", "job.yaml: has 0 jobs; write one, as NAME: KEYS"),
        ("", "job.yaml: has 0 jobs; write one, as NAME: KEYS"),
        ("- j", "job.yaml:1: teams.a.training: is not a mapping; "),
        ("j: [", "job.yaml:1: "),
    ],
)
def test_what_cannot_be_submitted_has_its_place_rule_and_fix(text: str, problem: str, tmp_path: Path) -> None:
    assert problem in refused(text, tmp_path)


def test_jobs_of_the_stack_local_are_submitted_or_say_why_not(tmp_path: Path) -> None:
    source = read_file(Path(__file__).parents[2] / "stacks" / "Pulumi.local.yaml")
    jobs = source.sections["teams"]["ml-research"]["training"]
    submitted = {name for name in jobs if _is_submitted(name, jobs[name], tmp_path)}
    assert submitted >= {"nightly", "evaluate", "finetune", "simulate", "tune"}
    assert submitted.isdisjoint({"render", "label", "rollout", "sweep", "gang"})


def _is_submitted(name: str, job: Data, folder: Path) -> bool:
    text = json.dumps({name: job})  # JSON is YAML
    try:
        wish = read(text, folder)
    except StackError:
        return False
    return (wish.name, wish.image) == (name, job["image"])
