"""The kinds that contain pods: where their pod templates are, and how Kueue and Volcano count them.

Paths are those of the kinds' definitions; what Kueue counts is from its integrations:
https://github.com/kubernetes-sigs/kueue/tree/v0.19.2/pkg/controller/jobs.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Queued: TypeAlias = Literal["object", "jobs", "either", "templates", "never"]
"""Where Kueue reads the queue label. `object`: on the object. `jobs`: on the Jobs of a CronJob. `either`: on the object
or on its pod template. `templates`: on the pods, which are queued one by one. `never`: its pods cannot be queued."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind that contains pods.

    Attributes:
        group: API group; empty for the core group.
        kind: its name.
        resource: its plural.
        templates: CEL of its pod templates (`metadata`, `spec`) as a list; `{of}` stands for the object.
        queued: where Kueue reads the queue label if it integrates the kind.
        framework: name of Kueue's integration; empty if Kueue counts the pods or children, whatever it integrates.
        without: as `queued`, if the integration is off.
        from_template: whether Kueue counts the pod template of the object, and not the pods, which have defaults.
        gang: CEL of the specs that name a Volcano queue, as a list; empty for other kinds.
    """

    group: str
    kind: str
    resource: str
    templates: str
    queued: Queued = "object"
    framework: str = ""
    without: Queued = "templates"
    from_template: bool = False
    gang: str = ""

    @property
    def key(self) -> str:
        """Group and kind as the policies compare them: `batch/Job`, `/Pod`."""
        return f"{self.group}/{self.kind}"

    def queue_place(self, frameworks: Collection[str]) -> Queued:
        """Where the queue label must be, with these integrations of Kueue."""
        return self.queued if not self.framework or self.framework in frameworks else self.without


_TEMPLATE: Final = "[{of}.spec.template]"


def _optional(path: str) -> str:
    parent, _, field = path.rpartition(".")
    return f"({parent}.?{field}.hasValue() ? [{path}] : [])"


def _tasks(spec: str) -> str:
    return f"{spec}.?tasks.orValue([]).filter(t, has(t.template)).map(t, t.template)"


def _ray(spec: str) -> str:
    workers = f"{spec}.?workerGroupSpecs.orValue([]).map(w, w.template)"
    # The options are those of a container, which KubeRay adds to the head.
    autoscaler = _optional(f"{spec}.autoscalerOptions")
    priority = f"{spec}.?headGroupSpec.?template.?spec.?priorityClassName.orValue('')"
    return (
        f"{_optional(f'{spec}.headGroupSpec')}.map(h, h.template) + {workers}"
        f" + {autoscaler}.map(a, dyn({{'spec': {{'containers': dyn([a]), 'priorityClassName': dyn({priority})}}}}))"
    )


def _kubeflow(kind: str, replicas: str) -> Kind:
    """A kind of the Training Operator: https://github.com/kubeflow/trainer/tree/release-1.9."""
    path = f"{{of}}.spec.{replicas}"
    templates = f"{{of}}.spec.?{replicas}.orValue({{}}).map(k, {path}[k].template)"
    plural = f"{kind.lower()}s"
    return Kind("kubeflow.org", kind, plural, templates, framework=f"kubeflow.org/{kind.lower()}", from_template=True)


KINDS: Final = (
    Kind("", "Pod", "pods", "[{of}]"),
    Kind("", "ReplicationController", "replicationcontrollers", _TEMPLATE, "templates"),
    Kind("apps", "DaemonSet", "daemonsets", _TEMPLATE, "templates"),
    Kind("apps", "Deployment", "deployments", _TEMPLATE, "either"),
    Kind("apps", "ReplicaSet", "replicasets", _TEMPLATE, "templates"),
    Kind("apps", "StatefulSet", "statefulsets", _TEMPLATE),
    Kind("batch", "CronJob", "cronjobs", "[{of}.spec.jobTemplate.spec.template]", "jobs", from_template=True),
    Kind("batch", "Job", "jobs", _TEMPLATE, from_template=True),
    Kind(
        "batch.volcano.sh",
        "CronJob",
        "cronjobs",
        _tasks("{of}.spec.jobTemplate.spec"),
        gang="[{of}.spec.jobTemplate.spec]",
    ),
    Kind("batch.volcano.sh", "Job", "jobs", _tasks("{of}.spec"), gang="[{of}.spec]"),
    Kind("flow.volcano.sh", "JobTemplate", "jobtemplates", _tasks("{of}.spec"), gang="[{of}.spec]"),
    Kind("scheduling.volcano.sh", "PodGroup", "podgroups", "[]", gang="[{of}.spec]"),
    Kind(
        "jobset.x-k8s.io",
        "JobSet",
        "jobsets",
        "{of}.spec.?replicatedJobs.orValue([]).map(j, j.template.spec.template)",
        from_template=True,
    ),
    # Only the resources: the rest is in a runtime, and is evaluated in the JobSet that Trainer creates from both.
    Kind(
        "trainer.kubeflow.org",
        "TrainJob",
        "trainjobs",
        "[dyn({'spec': {'containers': [{'resources': {of}.spec.?trainer.?resourcesPerNode.orValue({})}]}})]",
        from_template=True,
    ),
    # KEDA copies the labels of a ScaledJob to its Jobs: https://keda.sh/docs/2.20/reference/scaledjob-spec/
    Kind("keda.sh", "ScaledJob", "scaledjobs", "[{of}.spec.jobTargetRef.template]", from_template=True),
    Kind("argoproj.io", "Rollout", "rollouts", _optional("{of}.spec.template"), "templates"),
    _kubeflow("JAXJob", "jaxReplicaSpecs"),
    _kubeflow("MPIJob", "mpiReplicaSpecs"),
    _kubeflow("PaddleJob", "paddleReplicaSpecs"),
    _kubeflow("PyTorchJob", "pytorchReplicaSpecs"),
    _kubeflow("TFJob", "tfReplicaSpecs"),
    _kubeflow("XGBoostJob", "xgbReplicaSpecs"),
    # Its controller creates StatefulSets without the label, which Kueue holds back.
    Kind(
        "leaderworkerset.x-k8s.io",
        "LeaderWorkerSet",
        "leaderworkersets",
        _optional("{of}.spec.leaderWorkerTemplate.leaderTemplate")
        + " + [{of}.spec.leaderWorkerTemplate.workerTemplate]",
        framework="leaderworkerset.x-k8s.io/leaderworkerset",
        without="never",
    ),
    Kind("ray.io", "RayCluster", "rayclusters", _ray("{of}.spec"), framework="ray.io/raycluster", from_template=True),
    Kind(
        "ray.io",
        "RayJob",
        "rayjobs",
        f"({{of}}.spec.?rayClusterSpec.hasValue() ? {_ray('{of}.spec.rayClusterSpec')} : []) + "
        + _optional("{of}.spec.submitterPodTemplate"),
        framework="ray.io/rayjob",
        from_template=True,
    ),
    Kind(
        "ray.io",
        "RayService",
        "rayservices",
        _ray("{of}.spec.rayClusterConfig"),
        framework="ray.io/rayservice",
        from_template=True,
    ),
)
"""Kinds that contain pods. The pods of any other kind are evaluated when its controller creates them."""

JUDGED: Final = tuple(kind.key for kind in KINDS)
"""Kinds whose children were evaluated with them."""
