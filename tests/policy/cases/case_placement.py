"""Cases for `workload_rules.placement`."""

from typing import Any, Final

from policy_builders import GONE, UNKNOWN, Break, Case, changed, manifest

from workload_rules import placement

JOB: Final = manifest("""
apiVersion: batch/v1
kind: Job
metadata: {name: nightly, namespace: ml-research, labels: {kueue.x-k8s.io/queue-name: ml-research}}
spec:
  template:
    spec:
      nodeSelector: {nvidia.com/gpu.product: NVIDIA-L4}
      tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]
      containers:
      - name: train
        resources: {limits: {nvidia.com/gpu: 8}}
""")
CPU: Final = manifest("""
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: ml-research}
spec:
  template:
    spec:
      nodeSelector: {kubernetes.io/arch: amd64}
      tolerations: [{key: dedicated, operator: Equal, value: web, effect: NoSchedule}]
      containers: [{name: web, resources: {limits: {cpu: 1}}}]
""")
DAEMON: Final = manifest("""
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: logs, namespace: logging}
spec:
  template:
    spec:
      tolerations: [{operator: Exists}, {key: nvidia.com/gpu, operator: Exists}]
      containers: [{name: logs}]
""")
JOB_SET: Final = manifest("""
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: pretrain, namespace: ml-research}
spec: {replicatedJobs: [{name: w, template: {spec: {template: {spec: {containers: [{name: w}]}}}}}]}
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
          spec: {template: {spec: {tolerations: [{key: nvidia.com/gpu, operator: Exists}], containers: [{name: node}]}}}
""")
_OWN: Final = {"matchLabels": {"kubernetes.io/metadata.name": "ml-research"}}
_EXCLUSIVE: Final = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "topology.kubernetes.io/zone"}
_EXCLUDING: Final = (
    "JobSet ml-research/pretrain, w: has annotation alpha.jobset.sigs.k8s.io/exclusive-topology, which keeps JobSets of"
    " other namespaces from nodes; remove it"
)
_NIGHTLY: Final = "Job ml-research/nightly"
_WEB: Final = "Deployment ml-research/web"
_SPEC: Final = "job: spec.template.spec"
_TOLERATIONS: Final = f"{_SPEC}.tolerations"


def _affinity(*terms: tuple[str, str, list[str]]) -> dict[str, Any]:
    """A required node affinity; terms are alternatives."""
    listed = [{"matchExpressions": [{"key": k, "operator": op, "values": values}]} for k, op, values in terms]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": listed}}}


_BY_AFFINITY: Final = changed({"job": JOB}, f"{_SPEC}.nodeSelector", GONE)["job"]
_ANY: Final = (
    f"{_NIGHTLY}: requests nvidia.com/gpu without a GPU model; set one in nodeSelector or a required node affinity,"
    " by nvidia.com/gpu.product"
)


def _untolerated(key: str) -> str:
    return (
        f"{_NIGHTLY}: requests GPUs but does not tolerate {key}; add {{key: {key}, operator: Exists, effect:"
        " NoSchedule}"
    )


def _term(**more: Any) -> dict[str, Any]:
    return {"labelSelector": {}, "topologyKey": "topology.kubernetes.io/zone", **more}


def _apart(field: str = "podAntiAffinity", **more: Any) -> dict[str, Any]:
    return {field: {"requiredDuringSchedulingIgnoredDuringExecution": [_term(), _term(**more)]}}


def _preferred(**more: Any) -> dict[str, Any]:
    weighted = [{"weight": 100, "podAffinityTerm": _term(**more)}]
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": weighted}}


def _reaching(place: str, field: str = "podAntiAffinity") -> str:
    return (
        f"{place}: has a required {field} to pods of other namespaces; remove namespaces and namespaceSelector of its"
        " terms"
    )


CASES: Final = (
    Case(
        name="the taint of GPU nodes",
        rule=placement.gpu_toleration,
        given={"job": JOB},
        also=[
            (f"{_TOLERATIONS}.0", {"operator": "Exists"}),
            (f"{_TOLERATIONS}.0", {"key": "nvidia.com/gpu", "value": "present"}),
            (f"{_SPEC}.containers.0.resources.limits", {"nvidia.com/mig-1g.10gb": 1}),
            ("job: metadata.namespace", "kube-system"),
            ("job: metadata.namespace", UNKNOWN),
            (f"{_SPEC}", {"containers": [{"name": "cpu"}]}),
        ],
        breaks=[
            Break(_TOLERATIONS, GONE, _untolerated("nvidia.com/gpu")),
            Break(f"{_TOLERATIONS}.0.effect", "NoExecute", _untolerated("nvidia.com/gpu")),
            Break(f"{_SPEC}.containers.0.resources.limits", {"amd.com/gpu": 8}, _untolerated("amd.com/gpu")),
        ],
        unknown={_TOLERATIONS: _NIGHTLY},
    ),
    Case(
        name="an unknown namespace is reported only with a violation",
        rule=placement.gpu_toleration,
        given={"job": changed({"job": JOB}, _TOLERATIONS, GONE)["job"]},
        settings={"system": ["ml-research"]},
        unknown={"job: metadata.namespace": "Job nightly"},
    ),
    Case(
        name="taint keys in settings",
        rule=placement.gpu_toleration,
        given={"job": changed({"job": JOB}, f"{_TOLERATIONS}.0.key", "sku")["job"]},
        settings={"taints": ["sku"]},
        breaks=[Break(f"{_TOLERATIONS}.0.key", "nvidia.com/gpu", _untolerated("sku"))],
    ),
    Case(
        name="a model by a node selector",
        rule=placement.gpu_model_named,
        given={"job": JOB, "cpu": CPU},
        also=[
            (f"{_SPEC}.nodeSelector", {"cloud.google.com/gke-accelerator": "nvidia-l4"}),
            (f"{_SPEC}.affinity", _affinity(("topology.kubernetes.io/zone", "In", ["a"]))),
        ],
        breaks=[
            Break(f"{_SPEC}.nodeSelector", {"node-type": "gpu"}, _ANY),
            Break(
                _SPEC,
                {"containers": [{"name": "train", "resources": {"limits": {"nvidia.com/mig-1g.10gb": 1}}}]},
                _ANY.replace("nvidia.com/gpu without", "nvidia.com/mig-1g.10gb without"),
            ),
        ],
        unknown={f"{_SPEC}.nodeSelector": _NIGHTLY},
    ),
    Case(
        name="a model by an affinity: each of its alternatives names one",
        rule=placement.gpu_model_named,
        given={
            "job": changed(
                {"job": _BY_AFFINITY},
                f"{_SPEC}.affinity",
                _affinity(("nvidia.com/gpu.product", "In", ["NVIDIA-L4"]), ("nvidia.com/gpu.product", "In", ["A"])),
            )["job"]
        },
        breaks=[
            Break(
                f"{_SPEC}.affinity",
                _affinity(("nvidia.com/gpu.product", "In", ["NVIDIA-L4"]), ("zone", "In", ["a"])),
                _ANY,
            ),
            Break(f"{_SPEC}.affinity", _affinity(("nvidia.com/gpu.product", "NotIn", ["Tesla-T4"])), _ANY),
            Break(f"{_SPEC}.affinity", _affinity(), _ANY),
        ],
    ),
    Case(
        name="a queue label that is sufficient by settings",
        rule=placement.gpu_model_named,
        given={"job": _BY_AFFINITY},
        settings={"queues": ["kueue.x-k8s.io/queue-name"]},
        breaks=[Break("job: metadata.labels", GONE, _ANY)],
    ),
    Case(
        name="partitions that are sufficient by settings",
        rule=placement.gpu_model_named,
        given={
            "job": changed(
                {"job": _BY_AFFINITY}, f"{_SPEC}.containers.0.resources", {"limits": {"nvidia.com/mig-1g.10gb": 1}}
            )["job"]
        },
        settings={"partitions": True},
        breaks=[Break(f"{_SPEC}.containers.0.resources", {"limits": {"nvidia.com/gpu": 1}}, _ANY)],
    ),
    Case(
        name="pods without GPUs",
        rule=placement.cpu_pods_off_gpu_nodes,
        given={"cpu": CPU, "job": JOB, "daemon": DAEMON},
        also=[
            ("cpu: spec.template.spec.tolerations.0", {"operator": "Exists"}),
            (
                "cpu: spec.template.spec",
                {"tolerations": [{"key": "nvidia.com/gpu"}], "resourceClaims": [{"name": "gpu"}], "containers": []},
            ),
            ("runtime", RUNTIME),
        ],
        breaks=[
            Break(
                "cpu: spec.template.spec.tolerations.0.key",
                "nvidia.com/gpu",
                f"{_WEB}: requests no GPU but tolerates nvidia.com/gpu; remove the toleration",
            ),
            Break(
                "cpu: spec.template.spec.nodeSelector",
                {"nvidia.com/gpu.present": "true"},
                f"{_WEB}: requests no GPU but selects nodes by nvidia.com/gpu.present; select other nodes",
            ),
            Break(
                "cpu: spec.template.spec.affinity",
                _affinity(("cloud.google.com/gke-accelerator", "In", ["nvidia-l4"])),
                f"{_WEB}: requests no GPU but selects nodes by cloud.google.com/gke-accelerator; select other nodes",
            ),
        ],
        unknown={"cpu: spec.template.spec.tolerations.0.key": _WEB},
    ),
    Case(
        name="tolerations of a taint in settings",
        rule=placement.cpu_pods_off_gpu_nodes,
        given={"cpu": CPU},
        settings={"taints": ["sku"], "daemonsets": True},
        breaks=[
            Break(
                "cpu: spec.template.spec.tolerations.0.key",
                "sku",
                f"{_WEB}: requests no GPU but tolerates sku; remove the toleration",
            )
        ],
    ),
    Case(
        name="keys of tolerations",
        rule=placement.toleration_has_key,
        given={"cpu": CPU, "daemon": DAEMON},
        breaks=[
            Break(
                "cpu: spec.template.spec.tolerations.0.key",
                GONE,
                f"{_WEB}: toleration 0 has no key and tolerates every taint; set the key of one taint",
            )
        ],
        unknown={"cpu: spec.template.spec.tolerations": _WEB},
    ),
    Case(
        name="keys of tolerations of DaemonSets by settings",
        rule=placement.toleration_has_key,
        given={"cpu": CPU},
        settings={"daemonsets": True},
        breaks=[
            Break(
                "cpu",
                DAEMON,
                "DaemonSet logging/logs: toleration 0 has no key and tolerates every taint; set the key of one taint",
            )
        ],
    ),
    Case(
        name="affinities to pods of other namespaces",
        rule=placement.affinity_own_namespace,
        given={"job": JOB, "set": JOB_SET},
        also=[
            (f"{_SPEC}.affinity", _apart()),
            (f"{_SPEC}.affinity", _apart(namespaces=["ml-research"])),
            (f"{_SPEC}.affinity", _apart(namespaceSelector=_OWN)),
            (f"{_SPEC}.affinity", _preferred(namespaceSelector={})),
            ("set: metadata.annotations", {"alpha.jobset.sigs.k8s.io/note": "x"}),
            ("job: metadata.namespace", "kube-system"),
        ],
        breaks=[
            Break(f"{_SPEC}.affinity", _apart(namespaceSelector={}), _reaching(_NIGHTLY)),
            Break(f"{_SPEC}.affinity", _apart(namespaces=["ml-research", "ml-serving"]), _reaching(_NIGHTLY)),
            Break(
                f"{_SPEC}.affinity",
                _apart("podAffinity", namespaceSelector={**_OWN, "matchExpressions": []}),
                _reaching(_NIGHTLY, "podAffinity"),
            ),
            Break("set: metadata.annotations", _EXCLUSIVE, _EXCLUDING),
            Break("set: spec.replicatedJobs.0.template.metadata", {"annotations": _EXCLUSIVE}, _EXCLUDING),
        ],
        unknown={f"{_SPEC}.affinity": _NIGHTLY},
    ),
)
