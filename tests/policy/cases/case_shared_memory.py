"""Cases for the shared memory of `workload_rules.gpus`."""

from typing import Final

from policy_builders import GONE, Break, Case, changed, manifest

from workload_rules import gpus

JOB: Final = manifest("""
apiVersion: batch/v1
kind: Job
metadata: {name: nightly, namespace: ml-research}
spec:
  completionMode: Indexed
  parallelism: 4
  template:
    spec:
      containers:
      - name: train
        resources: {limits: {nvidia.com/gpu: 8}}
        volumeMounts: [{name: data, mountPath: /data}, {name: shm, mountPath: /dev/shm}]
      - name: logs
      volumes:
      - name: data
        persistentVolumeClaim: {claimName: data}
      - name: shm
        emptyDir: {medium: Memory, sizeLimit: 8Gi}
""")
VOLCANO: Final = manifest("""
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: gang, namespace: ml-research}
spec:
  queue: ml-research-l4
  tasks:
  - name: worker
    replicas: 3
    template:
      spec:
        containers:
        - name: train
          image: registry.example.com/ml/train:3.0.1
          resources: {limits: {nvidia.com/gpu: 1}}
          volumeMounts: [{name: shm, mountPath: /dev/shm/}]
        volumes:
        - name: shm
          emptyDir: {medium: Memory, sizeLimit: 1Gi}
""")
SET: Final = manifest("""
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: set, namespace: ml-research}
spec:
  replicatedJobs:
  - name: driver
    replicas: 2
    template: {spec: {template: {spec: {containers: [{name: driver}]}}}}
  - name: workers
    template: {spec: {template: {spec: {containers: [{name: train, resources: {limits: {nvidia.com/gpu: 1}}}]}}}}
""")
TORCH: Final = manifest("""
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: torch, namespace: ml-research}
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: 1
      template: {spec: {containers: [{name: train, resources: {limits: {nvidia.com/gpu: 1}}}]}}
""")
MPI: Final = manifest("""
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: mpi, namespace: ml-research}
spec:
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      template: {spec: {containers: [{name: launch}]}}
    Worker:
      replicas: 1
      template: {spec: {containers: [{name: train, resources: {limits: {nvidia.com/gpu: 1}}}]}}
""")
GROUP: Final = manifest("""
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: group, namespace: ml-research}
spec:
  replicas: 3
  leaderWorkerTemplate:
    size: 1
    workerTemplate: {spec: {containers: [{name: train, resources: {limits: {nvidia.com/gpu: 1}}}]}}
""")
_NIGHTLY: Final = "Job ml-research/nightly"
_SHM: Final = {"name": "shm", "mountPath": "/dev/shm"}  # noqa: S108 - the mount of the case
_SPEC: Final = "job: spec.template.spec"
_CONTAINER: Final = f"{_SPEC}.containers.0"
_RESOURCES: Final = f"{_CONTAINER}.resources"
_MOUNT: Final = "mount an emptyDir with medium Memory and a sizeLimit of at least 1Gi there"
_WORKERS: Final = (
    "JobSet ml-research/set, workers: container train has only the default 64Mi of /dev/shm for GPU communication;"
    f" {_MOUNT}"
)
_NONE: Final = f"container train has only the default 64Mi of /dev/shm for GPU communication; {_MOUNT}"


def _gpus(count: object) -> dict[str, dict[str, object]]:
    return {"limits": {"nvidia.com/gpu": count}}


_ALONE: Final = changed(
    {"job": JOB}, "job: spec", {"template": {"spec": {"containers": [{"name": "train", "resources": _gpus(1)}]}}}
)["job"]

CASES: Final = (
    Case(
        name="shared memory",
        rule=gpus.shared_memory,
        given={"job": JOB, "gang": VOLCANO},
        also=[
            ("job: spec.template.spec", {"containers": [{"name": "train", "resources": _gpus(1)}], "hostIPC": True}),
            (_RESOURCES, {}),
            (f"{_CONTAINER}.volumeMounts", [_SHM, {"name": "data", "mountPath": "/data"}]),
        ],
        breaks=[
            Break(
                f"{_CONTAINER}.volumeMounts",
                GONE,
                f"{_NIGHTLY}: container train has only the default 64Mi of /dev/shm for GPU communication; {_MOUNT}",
            ),
            Break(
                f"{_SPEC}.volumes.1",
                {"name": "shm", "persistentVolumeClaim": {"claimName": "shm"}},
                f"{_NIGHTLY}: container train mounts volume shm at /dev/shm, which is not in memory; {_MOUNT}",
            ),
            Break(
                f"{_SPEC}.volumes.1.emptyDir.sizeLimit",
                GONE,
                f"{_NIGHTLY}: container train mounts volume shm at /dev/shm without a sizeLimit; set 1Gi or more,"
                " within the memory limit",
            ),
            Break(
                f"{_SPEC}.volumes.1.emptyDir.sizeLimit",
                "512Mi",
                f"{_NIGHTLY}: container train mounts volume shm at /dev/shm with a sizeLimit of 512Mi; set 1Gi or more",
            ),
            Break(
                "gang: spec.tasks.0.template.spec.volumes.0.emptyDir.medium",
                GONE,
                "Job ml-research/gang, worker: container train mounts volume shm at /dev/shm, which is not in"
                f" memory; {_MOUNT}",
            ),
        ],
        unknown={f"{_SPEC}.volumes.1.emptyDir.sizeLimit": _NIGHTLY},
    ),
    Case(
        name="pods with one GPU each that communicate",
        rule=gpus.shared_memory,
        given={"set": SET},
        also=[("set: spec.replicatedJobs.1.template.spec.template.spec.containers.0.resources", {})],
        breaks=[
            Break("set: spec.replicatedJobs.1.replicas", 2, _WORKERS),
            Break("set: spec.replicatedJobs.1.template.spec.parallelism", 2, _WORKERS),
        ],
        unknown={"set: spec.replicatedJobs.1.replicas": "JobSet ml-research/set, workers"},
    ),
    Case(
        name="a single pod with one GPU",
        rule=gpus.shared_memory,
        given={"gang": VOLCANO},
        settings={"jobs": False},
        also=[("gang: spec.tasks.0.template.spec.volumes", [])],
    ),
    Case(
        name="Jobs, whose pods communicate if they are indexed",
        rule=gpus.shared_memory,
        given={"job": _ALONE},
        also=[("job: spec.parallelism", 4), ("job: spec.completionMode", "Indexed")],
        breaks=[
            Break(_RESOURCES, {"limits": {"nvidia.com/gpu": 2, "nvidia.com/mig-1g.5gb": 1}}, f"{_NIGHTLY}: {_NONE}"),
            Break(
                "job: spec",
                {**_ALONE.props["spec"], "completionMode": "Indexed", "parallelism": 2},
                f"{_NIGHTLY}: {_NONE}",
            ),
        ],
    ),
    Case(
        name="other kinds of work with several pods",
        rule=gpus.shared_memory,
        given={"torch": TORCH, "mpi": MPI, "group": GROUP},
        breaks=[
            Break(
                "torch: spec.pytorchReplicaSpecs.Worker.replicas", 2, f"PyTorchJob ml-research/torch, Worker: {_NONE}"
            ),
            Break("mpi: spec.mpiReplicaSpecs.Worker.replicas", 2, f"MPIJob ml-research/mpi, Worker: {_NONE}"),
            Break("group: spec.leaderWorkerTemplate.size", 2, f"LeaderWorkerSet ml-research/group: {_NONE}"),
        ],
    ),
)
