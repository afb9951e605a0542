"""Cases for `workload_rules.priorities`."""

from typing import Final

from policy_builders import GONE, Break, Case, changed, manifest

from cases.platform import CRITICAL, LOW, QUEUE_CLASS, SECOND, SERVER, TRAINING
from workload_rules import priorities

AGENT: Final = manifest("""
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: logs, namespace: logs}
spec: {template: {spec: {priorityClassName: system-node-critical, containers: [{name: logs}]}}}
""")
GANG: Final = manifest("""
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: gang, namespace: ml-research}
spec:
  priorityClassName: ml-low
  tasks:
  - name: worker
    replicas: 4
    template: {spec: {containers: [{name: train, resources: {limits: {nvidia.com/gpu: 1}}}]}}
""")
RUNTIME: Final = manifest("""
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata: {name: torch, namespace: ml-research}
spec:
  template:
    spec:
      replicatedJobs:
      - name: node
        template:
          spec: {template: {spec: {containers: [{name: node, resources: {limits: {nvidia.com/gpu: 1}}}]}}}
""")
_ONE: Final = "set globalDefault on only one of them"
_CHAT: Final = "Deployment ml-serving/chat"
_NIGHTLY: Final = "Job ml-research/nightly"
_MINE: Final = "job: spec.template.spec.priorityClassName"
_THEIRS: Final = "server: spec.template.spec.priorityClassName"
_LABEL: Final = "server: metadata.labels.'kueue.x-k8s.io/priority-class'"
_LIMITS: Final = "job: spec.template.spec.containers.0.resources.limits"
_UNCLASSED: Final = changed({"server": SERVER}, _THEIRS, GONE)
_NO_CLASS: Final = (
    f"{_NIGHTLY}: has ml-low (1000), which is higher than no class (0) of {_CHAT}, a serving workload; set a lower"
    " class, or a higher one for serving"
)

CASES: Final = (
    Case(
        name="a class for GPUs",
        rule=priorities.priority_class_set,
        given={"job": TRAINING, "gang": GANG},
        also=[(_LIMITS, {"cpu": 1}), ("job: metadata.namespace", "kube-system"), ("runtime", RUNTIME)],
        breaks=[
            Break(_MINE, GONE, f"{_NIGHTLY}: has no priority class; set priorityClassName"),
            Break(
                "gang: spec.priorityClassName",
                GONE,
                "Job ml-research/gang, worker: has no priority class; set priorityClassName",
            ),
        ],
        unknown={_MINE: _NIGHTLY, f"{_LIMITS}.'nvidia.com/gpu'": _NIGHTLY},
    ),
    Case(
        name="a class for every pod",
        rule=priorities.priority_class_set,
        given={
            "job": manifest("{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {priorityClassName: ml-low}}")
        },
        settings={"all_pods": True},
        breaks=[Break("job: spec.priorityClassName", GONE, "Pod web: has no priority class; set priorityClassName")],
    ),
    Case(
        name="system priority classes",
        rule=priorities.priority_not_system,
        given={"job": TRAINING},
        also=[(_MINE, "systematic"), ("job: metadata.namespace", "gpu-operator")],
        breaks=[
            Break(
                _MINE,
                "system-node-critical",
                f"{_NIGHTLY}: has the system priority class system-node-critical; set a priority class for tenants",
            )
        ],
        unknown={_MINE: _NIGHTLY},
    ),
    Case(name="system priority classes of DaemonSets", rule=priorities.priority_not_system, given={"agent": AGENT}),
    Case(
        name="DaemonSets checked by settings",
        rule=priorities.priority_not_system,
        given={"agent": changed({"agent": AGENT}, "agent: spec.template.spec.priorityClassName", "ml-low")["agent"]},
        settings={"daemonsets": True},
        breaks=[
            Break(
                "agent",
                AGENT,
                "DaemonSet logs/logs: has the system priority class system-node-critical; set a priority class for"
                " tenants",
            )
        ],
    ),
    Case(
        name="priority classes that workloads reference",
        rule=priorities.priority_exists,
        given={"server": SERVER, "gang": GANG, "critical": CRITICAL, "low": LOW, "queue": QUEUE_CLASS},
        also=[(_THEIRS, GONE), (_THEIRS, "system-cluster-critical"), ("queue", GONE), (_LABEL, GONE)],
        breaks=[
            Break(
                _THEIRS,
                "ml-top",
                f"{_CHAT}: references PriorityClass ml-top, which does not exist in this stack; correct the name or"
                " create it",
            ),
            Break(
                "low",
                GONE,
                "Job ml-research/gang, worker: references PriorityClass ml-low, which does not exist in this stack;"
                " correct the name or create it",
            ),
            Break(
                _LABEL,
                "ml-top",
                f"{_CHAT}: references WorkloadPriorityClass ml-top, which does not exist in this stack; correct the"
                " label kueue.x-k8s.io/priority-class or create it",
            ),
        ],
        unknown={_THEIRS: _CHAT, "critical: metadata.name": _CHAT},
    ),
    Case(
        name="priority classes created outside the stack",
        rule=priorities.priority_exists,
        given={"server": SERVER},
        settings={"classes": ["ml-critical"], "queues": ["ml-*"]},
        also=[(_LABEL, "ml-top")],
        breaks=[
            Break(
                _THEIRS,
                "ml-top",
                f"{_CHAT}: references PriorityClass ml-top, which does not exist in this stack; correct the name or"
                " create it",
            ),
            Break(
                _LABEL,
                "top",
                f"{_CHAT}: references WorkloadPriorityClass top, which does not exist in this stack; correct the"
                " label kueue.x-k8s.io/priority-class or create it",
            ),
        ],
    ),
    Case(
        name="the cluster's default",
        rule=priorities.one_global_default,
        given={"critical": CRITICAL, "low": LOW},
        also=[("critical: globalDefault", False), ("low: globalDefault", GONE)],
        breaks=[
            Break(
                at="critical: globalDefault",
                to=True,
                says=(
                    f"PriorityClass ml-critical: is the global default, and so is PriorityClass ml-low; {_ONE}",
                    f"PriorityClass ml-low: is the global default, and so is PriorityClass ml-critical; {_ONE}",
                ),
            )
        ],
        unknown={"critical: globalDefault": ("PriorityClass ml-critical", "PriorityClass ml-low")},
    ),
    Case(
        name="training beside serving",
        rule=priorities.training_not_above_serving,
        given={"job": TRAINING, "server": SERVER, "critical": CRITICAL, "low": LOW},
        also=[
            (_MINE, "ml-critical"),
            (_MINE, "nobody-knows"),
            (_MINE, GONE),
            (_LIMITS, {"cpu": 1}),
            ("server: spec.template.spec.containers.0.resources", {}),
        ],
        breaks=[
            Break(
                "low: value",
                2000000,
                f"{_NIGHTLY}: has ml-low (2000000), which is higher than ml-critical (1000000) of {_CHAT}, a"
                " serving workload; set a lower class, or a higher one for serving",
            ),
            Break(
                "critical: value",
                10,
                f"{_NIGHTLY}: has ml-low (1000), which is higher than ml-critical (10) of {_CHAT}, a serving"
                " workload; set a lower class, or a higher one for serving",
            ),
        ],
        unknown={"low: value": _NIGHTLY, _THEIRS: _NIGHTLY, _MINE: _NIGHTLY},
    ),
    Case(
        name="training beside a server without a class",
        rule=priorities.training_not_above_serving,
        given={"job": TRAINING, "server": SERVER},
        settings={
            "values": {"ml-low": 1000, "ml-critical": 1000000},
            "serving": ["ml-serving", "gpu-operator"],
            "training": ["*"],
        },
        also=[
            ("server: metadata.namespace", "ml-research"),
            ("server", changed(_UNCLASSED, "server: metadata.namespace", "ml-research")["server"]),
            ("server", changed(_UNCLASSED, "server: metadata.namespace", "gpu-operator")["server"]),
            ("server", changed(_UNCLASSED, "server: spec.template.spec.containers.0.resources", {})["server"]),
            (
                "server",
                changed(changed({"server": TRAINING}, "server: metadata.namespace", "ml-serving"), _THEIRS, GONE)[
                    "server"
                ],
            ),
        ],
        breaks=[Break(_THEIRS, GONE, _NO_CLASS)],
    ),
    Case(
        name="namespaces and workloads that count as training",
        rule=priorities.training_not_above_serving,
        given={"job": changed({"job": TRAINING}, "job: metadata.namespace", "ml-other")["job"], **_UNCLASSED},
        settings={"values": {"ml-low": 1000}, "training": ["ml-research", "gpu-operator"]},
        also=[
            ("job: metadata.namespace", "gpu-operator"),
            ("job", changed({"job": TRAINING}, _LIMITS, {"cpu": 1})["job"]),
        ],
        breaks=[Break("job: metadata.namespace", "ml-research", _NO_CLASS)],
    ),
    Case(
        name="the lowest of several servers, with the cluster's default",
        rule=priorities.training_not_above_serving,
        given={
            "job": changed({"job": TRAINING}, _MINE, "ml-critical")["job"],
            "server": SERVER,
            "second": SECOND,
            "critical": CRITICAL,
            "low": LOW,
        },
        breaks=[
            Break(
                _THEIRS,
                GONE,
                f"{_NIGHTLY}: has ml-critical (1000000), which is higher than ml-low (1000) of {_CHAT}, a serving"
                " workload; set a lower class, or a higher one for serving",
            )
        ],
    ),
)
