"""Cases for `workload_rules.jobs`."""

from typing import Final

from policy_builders import GONE, Break, Case, Sample, changed, manifest

from workload_rules import jobs

JOB: Final = manifest("""
apiVersion: batch/v1
kind: Job
metadata: {name: nightly, namespace: ml-research, labels: {kueue.x-k8s.io/queue-name: ml-research}}
spec:
  activeDeadlineSeconds: 86400
  template:
    spec:
      nodeSelector: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}
      containers: [{name: train, resources: {limits: {nvidia.com/gpu: 8}}}]
""")
CRON: Final = manifest("""
apiVersion: batch/v1
kind: CronJob
metadata: {name: weekly, namespace: ml-research}
spec:
  jobTemplate:
    metadata: {labels: {kueue.x-k8s.io/queue-name: ml-research}}
    spec:
      activeDeadlineSeconds: 86400
      template:
        spec:
          containers: [{name: train, resources: {limits: {nvidia.com/gpu: 8}}}]
""")
GANG: Final = manifest("""
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: gang, namespace: ml-research}
spec:
  queue: ml-research-l4
  tasks:
  - name: worker
    template:
      spec:
        activeDeadlineSeconds: 86400
        nodeSelector: {nvidia.com/gpu.product: NVIDIA-L4}
        containers: [{name: train, resources: {limits: {nvidia.com/gpu: 1}}}]
""")
SET: Final = manifest("""
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: set, namespace: ml-research, labels: {kueue.x-k8s.io/queue-name: ml-research}}
spec:
  replicatedJobs:
  - name: driver
    template: {spec: {template: {spec: {containers: [{name: driver}]}}}}
  - name: workers
    template:
      spec:
        activeDeadlineSeconds: 3600
        template:
          spec:
            containers: [{name: train, resources: {limits: {nvidia.com/gpu: 1}}}]
""")
TORCH: Final = manifest("""
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: torch, namespace: ml-research}
spec:
  runPolicy: {activeDeadlineSeconds: 3600, schedulingPolicy: {queue: ml-research-l4}}
  pytorchReplicaSpecs:
    Worker:
      template:
        spec:
          containers: [{name: train, resources: {limits: {nvidia.com/gpu: 1}}}]
""")
ANNOTATED: Final = manifest("""
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: torch, namespace: ml-research}
spec:
  pytorchReplicaSpecs:
    Master:
      template:
        metadata: {annotations: {scheduling.volcano.sh/queue-name: ml-research-l4}}
        spec: {containers: [{name: train, resources: {limits: {nvidia.com/gpu: 1}}}]}
    Worker:
      template:
        metadata: {annotations: {scheduling.volcano.sh/queue-name: ml-research-l4}}
        spec: {containers: [{name: train, resources: {limits: {nvidia.com/gpu: 1}}}]}
""")
TRAIN: Final = manifest("""
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: finetune, namespace: ml-research, labels: {kueue.x-k8s.io/queue-name: ml-research}}
spec:
  activeDeadlineSeconds: 3600
  trainer: {resourcesPerNode: {limits: {nvidia.com/gpu: 4}}}
  runtimePatches:
  - trainingRuntimeSpec:
      template:
        spec:
          replicatedJobs:
          - name: node
            template: {spec: {template: {spec: {nodeSelector: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}}}}}
""")
GROUPS: Final = manifest("""
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: groups, namespace: ml-research, labels: {kueue.x-k8s.io/queue-name: ml-research}}
spec:
  leaderWorkerTemplate:
    size: 2
    workerTemplate:
      spec:
        containers: [{name: train, resources: {requests: {nvidia.com/gpu: 4}, limits: {nvidia.com/gpu: 4}}}]
""")
SERVER: Final = manifest("""
apiVersion: apps/v1
kind: Deployment
metadata: {name: server, namespace: ml-research}
spec:
  template:
    spec:
      containers: [{name: server, resources: {limits: {nvidia.com/gpu: 1}}}]
""")
_NIGHTLY: Final = "Job ml-research/nightly"
_GANG: Final = "Job ml-research/gang"
_ALL: Final = {"job": JOB, "cron": CRON, "gang": GANG, "set": SET, "torch": TORCH, "train": TRAIN, "server": SERVER}
_LABEL: Final = "metadata.labels.'kueue.x-k8s.io/queue-name'"
_AMD: Final = {"limits": {"amd.com/gpu": 1}}
_L4: Final = {"nvidia.com/gpu.product": "NVIDIA-L4"}


def _no_end(place: str, where: str) -> str:
    return f"{place}: requests nvidia.com/gpu without a time limit; set {where}.activeDeadlineSeconds: 604800 or less"


def _with_spec(**fields: object) -> Sample:
    """The Job without a queue, but with fields in which other kinds have theirs."""
    return changed(
        {"job": changed({"job": JOB}, f"job: {_LABEL}", GONE)["job"]}, "job: spec", {**JOB.props["spec"], **fields}
    )["job"]


def _no_queue(place: str, write: str = "label kueue.x-k8s.io/queue-name") -> str:
    return f"{place}: requests nvidia.com/gpu and has no queue; set {write}"


def _both(place: str, other: str) -> str:
    return (
        f"{place}: is scheduled by Volcano, and {other} of queue ml-research by Kueue, so both can use the same"
        " GPUs; use one scheduler for both, select different nodes, or list the namespace under `partitioned`"
    )


def _limited(place: str, gpus: int) -> str:
    return (
        f"{place}, container train: limits {gpus} nvidia.com/gpu without a request, which Kueue could count as 0; set"
        f" requests.nvidia.com/gpu: {gpus}"
    )


_DAY, _TEN_DAYS = (
    {"spec": {**JOB.props["spec"]["template"]["spec"], "activeDeadlineSeconds": seconds}} for seconds in (86400, 864000)
)
_CLAIMING: Final = {
    "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "eight"}],
    "containers": [{"name": "train", "resources": {"claims": [{"name": "gpu"}]}}],
}

CASES: Final = (
    Case(
        name="time limits of jobs",
        rule=jobs.gpu_jobs_end,
        given=_ALL,
        also=[
            ("job: spec.template.spec.containers.0.resources", {}),
            ("job: spec", {**JOB.props["spec"], "activeDeadlineSeconds": 700000, "template": _DAY}),
            ("set: spec.replicatedJobs.1.template.spec.template.spec.activeDeadlineSeconds", 60),
        ],
        breaks=[
            Break("job: spec.activeDeadlineSeconds", GONE, _no_end(_NIGHTLY, "spec")),
            Break(
                "job: spec.activeDeadlineSeconds",
                700000,
                (f"{_NIGHTLY}: time limit of 700000 seconds exceeds the maximum; set 604800 or less"),
            ),
            Break(
                "job: spec",
                {**JOB.props["spec"], "activeDeadlineSeconds": 700000, "template": _TEN_DAYS},
                (f"{_NIGHTLY}: time limit of 700000 seconds exceeds the maximum; set 604800 or less"),
            ),
            Break(
                "cron: spec.jobTemplate.spec.activeDeadlineSeconds",
                GONE,
                _no_end("CronJob ml-research/weekly", "spec.jobTemplate.spec"),
            ),
            Break(
                "gang: spec.tasks.0.template.spec.activeDeadlineSeconds",
                GONE,
                _no_end(f"{_GANG}, worker", "spec.tasks.0.template.spec"),
            ),
            Break(
                "set: spec.replicatedJobs.1.template.spec.activeDeadlineSeconds",
                GONE,
                _no_end("JobSet ml-research/set, workers", "spec.replicatedJobs.*.template.spec"),
            ),
            Break("torch: spec.runPolicy", GONE, _no_end("PyTorchJob ml-research/torch, Worker", "spec.runPolicy")),
            Break("train: spec.activeDeadlineSeconds", GONE, _no_end("TrainJob ml-research/finetune", "spec")),
        ],
        unknown={"job: spec.activeDeadlineSeconds": _NIGHTLY},
    ),
    Case(
        name="time limits by Kueue's label",
        rule=jobs.gpu_jobs_end,
        given={"job": JOB},
        also=[
            (
                "job",
                manifest("""
apiVersion: batch/v1
kind: Job
metadata: {name: nightly, namespace: ml-research, labels: {kueue.x-k8s.io/max-exec-time-seconds: "3600"}}
spec:
  template:
    spec:
      containers: [{name: train, resources: {limits: {nvidia.com/gpu: 8}}}]
"""),
            )
        ],
        settings={"hours": 24.0},
        breaks=[
            Break(
                "job: spec.activeDeadlineSeconds",
                90000,
                (f"{_NIGHTLY}: time limit of 90000 seconds exceeds the maximum; set 86400 or less"),
            )
        ],
    ),
    Case(
        name="a queue",
        rule=jobs.batch_names_queue,
        given=_ALL,
        also=[
            ("job: spec.template.spec.containers.0.resources", {}),
            ("torch: metadata.annotations", {"scheduling.volcano.sh/queue-name": "ml-research-l4"}),
            ("job: metadata.namespace", "kueue-system"),
        ],
        breaks=[
            Break(f"job: {_LABEL}", GONE, _no_queue(_NIGHTLY)),
            Break(f"job: {_LABEL}", "", _no_queue(_NIGHTLY)),
            Break("cron: spec.jobTemplate.metadata", GONE, _no_queue("CronJob ml-research/weekly")),
            Break("job", _with_spec(queue="ml-research"), _no_queue(_NIGHTLY)),
            Break("job", _with_spec(runPolicy={"schedulingPolicy": {"queue": "ml-research"}}), _no_queue(_NIGHTLY)),
            Break("gang: spec.queue", GONE, _no_queue(_GANG, "spec.queue")),
            Break("torch: spec.runPolicy.schedulingPolicy", GONE, _no_queue("PyTorchJob ml-research/torch")),
            Break("train: metadata.labels", GONE, _no_queue("TrainJob ml-research/finetune")),
        ],
        unknown={f"job: {_LABEL}": _NIGHTLY},
    ),
    Case(
        name="GPUs under requests, where Kueue counts the template",
        rule=jobs.queued_gpus_requested,
        given=changed(
            {"job": JOB, "groups": GROUPS, "gang": GANG, "torch": TORCH, "server": SERVER},
            "job: spec.template.spec.containers.0.resources.requests",
            {"nvidia.com/gpu": 8},
        ),
        also=[
            (f"job: {_LABEL}", GONE),
            ("job: spec.template.spec.containers.0.resources.limits", {"cpu": 8}),
            ("job: spec.template.spec.containers.0.resources", {"limits": {"nvidia.com/gpu": 0}}),
            ("server: metadata.labels", {"kueue.x-k8s.io/queue-name": "ml-research"}),
            ("job: metadata.namespace", "kueue-system"),
        ],
        breaks=[
            Break("job: spec.template.spec.containers.0.resources.requests", GONE, _limited(_NIGHTLY, 8)),
            Break(
                "groups: spec.leaderWorkerTemplate.workerTemplate.spec.containers.0.resources.requests",
                {"cpu": 1},
                _limited("LeaderWorkerSet ml-research/groups", 4),
            ),
        ],
        unknown={f"job: {_LABEL}": f"{_NIGHTLY}, container train"},
    ),
    Case(
        name="a queue in the annotations of pods counts for Volcano only",
        rule=jobs.batch_names_queue,
        given={
            "job": manifest("""
apiVersion: batch/v1
kind: Job
metadata: {name: nightly, namespace: ml-research}
spec:
  template:
    metadata: {annotations: {scheduling.volcano.sh/queue-name: ml-research-l4}}
    spec:
      schedulerName: volcano
      containers: [{name: train, resources: {limits: {nvidia.com/gpu: 8}}}]
"""),
            "train": TRAIN,
        },
        also=[
            (
                "train",
                manifest("""
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: finetune, namespace: ml-research}
spec:
  annotations: {scheduling.volcano.sh/queue-name: ml-research-l4}
  trainer: {resourcesPerNode: {limits: {nvidia.com/gpu: 4}}}
"""),
            )
        ],
        breaks=[
            Break(
                "job: spec.template.metadata",
                {"labels": {"kueue.x-k8s.io/queue-name": "ml-research"}},
                _no_queue(_NIGHTLY),
            )
        ],
    ),
    Case(
        name="a queue in the annotations of each of the pods with GPUs",
        rule=jobs.batch_names_queue,
        given={"torch": ANNOTATED},
        breaks=[
            Break(
                "torch: spec.pytorchReplicaSpecs.Worker.template.metadata",
                GONE,
                _no_queue("PyTorchJob ml-research/torch"),
            )
        ],
    ),
    Case(
        name="claimed devices",
        rule=jobs.batch_names_queue,
        given={"job": changed({"job": JOB}, "job: spec.template.spec", _CLAIMING)["job"]},
        settings={"claims": ["nic-*"]},
        also=[("job: spec.template.spec.resourceClaims.0.resourceClaimTemplateName", "nic-rdma")],
        breaks=[
            Break(
                "job: metadata.labels",
                GONE,
                f"{_NIGHTLY}: requests devices of eight and has no queue; set label kueue.x-k8s.io/queue-name",
            )
        ],
    ),
    Case(
        name="claimed devices without GPUs, as in settings",
        rule=jobs.batch_names_queue,
        given={
            "job": changed(changed({"job": JOB}, "job: spec.template.spec", _CLAIMING), "job: metadata.labels", {})[
                "job"
            ]
        },
        settings={"claims": ["eight"]},
    ),
    Case(
        name="Kueue and Volcano in one namespace on different nodes",
        rule=jobs.one_batch_scheduler,
        given={"job": JOB, "gang": GANG, "train": TRAIN, "server": SERVER},
        also=[
            ("gang: metadata.namespace", "ml-other"),
            ("job: spec.template.spec.schedulerName", "volcano"),
            ("job: spec.template.spec", {"containers": [{"name": "cpu"}]}),
            ("server: spec.template.spec", {"schedulerName": "volcano", "containers": [{"resources": _AMD}]}),
        ],
        breaks=[
            Break("job: spec.template.spec.nodeSelector", _L4, _both(_GANG, _NIGHTLY)),
            Break(
                "server: spec.template.spec.schedulerName", "volcano", _both("Deployment ml-research/server", _NIGHTLY)
            ),
            Break("train: spec.runtimePatches", GONE, _both(_GANG, "TrainJob ml-research/finetune")),
            Break(
                "server: metadata.labels",
                {"kueue.x-k8s.io/queue-name": "ml-research"},
                _both(_GANG, "Deployment ml-research/server"),
            ),
        ],
        unknown={"job: spec.template.spec.nodeSelector.'nvidia.com/gpu.product'": _GANG},
    ),
    Case(
        name="a Volcano Job with another scheduler",
        rule=jobs.one_batch_scheduler,
        given={
            "job": changed({"job": JOB}, "job: spec.template.spec.nodeSelector", _L4)["job"],
            "gang": changed({"gang": GANG}, "gang: spec.schedulerName", "default-scheduler")["gang"],
        },
        breaks=[Break("gang: spec.schedulerName", "volcano", _both(_GANG, _NIGHTLY))],
    ),
    Case(
        name="Kueue and Volcano in one namespace with partitioned quota",
        rule=jobs.one_batch_scheduler,
        given={"job": JOB, "gang": GANG},
        settings={"partitioned": ["ml-res*"]},
        also=[("job: spec.template.spec.nodeSelector", _L4)],
    ),
)
