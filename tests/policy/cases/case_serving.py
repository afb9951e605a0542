"""Cases for `workload_rules.serving`."""

from copy import deepcopy
from dataclasses import replace
from typing import Any, Final

from policy_builders import GONE, Break, Case, Sample, manifest

from cases.platform import AUTOSCALER, SCALED, SECOND, SERVER
from workload_rules import serving

BATCH: Final = manifest("""
apiVersion: batch/v1
kind: Job
metadata: {name: nightly, namespace: ml-serving}
spec: {template: {spec: {containers: [{name: train, resources: {limits: {nvidia.com/gpu: 8}}}]}}}
""")
RANK: Final = manifest("""
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: rank, namespace: ml-serving}
spec: {scaleTargetRef: {kind: StatefulSet, name: rank}, maxReplicaCount: 5}
""")
BLUE: Final = manifest("""
apiVersion: argoproj.io/v1alpha1
kind: Rollout
metadata: {name: blue, namespace: ml-serving}
""")
_LIMITS: Final = {"limits": {"nvidia.com/gpu": 1}}
_CHAT: Final = "Deployment ml-serving/chat"
_CONTAINER: Final = f"{_CHAT}, container server"
_SERVER: Final = "server: spec.template.spec.containers.0"
_HPA: Final = "HorizontalPodAutoscaler ml-serving/chat"
_SCALED: Final = "ScaledObject ml-serving/chat"
_APPLIED: Final[dict[str, Any]] = {"operation": "Apply", "fieldsV1": {"f:spec": {"f:replicas": {}, "f:template": {}}}}
_NOT_APPLIED: Final[dict[str, Any]] = {"operation": "Apply", "fieldsV1": {"f:spec": {"f:template": {}}}}
_BY_SCALE: Final[dict[str, Any]] = {
    "operation": "Update",
    "subresource": "scale",
    "fieldsV1": {"f:spec": {"f:replicas": {}}},
}
_UPDATED: Final[dict[str, Any]] = {"operation": "Update", "fieldsV1": {"f:spec": {"f:replicas": {}}}}
_TOO: Final = f"sets replicas, which {_HPA} also sets; remove spec.replicas"


def _live(*managers: object) -> Sample:
    """The server as the API server answers it: replicas are filled in, and who owns each field is said."""
    props = deepcopy(SERVER.props)
    props["metadata"]["managedFields"] = list(managers)
    props["spec"]["replicas"] = 3
    return replace(SERVER, props=props)


CASES: Final = (
    Case(
        name="bounds of an autoscaler",
        rule=serving.autoscaler_bounded,
        given={"hpa": AUTOSCALER, "keda": SCALED},
        settings={"maximum": 20, "minimum": 2},
        also=[("hpa: spec.maxReplicas", 20), ("keda: metadata.namespace", "monitoring")],
        breaks=[
            Break(
                "hpa: spec.maxReplicas",
                21,
                f"{_HPA}: maximum of 21 pods exceeds the upper bound (20); lower its maximum",
            ),
            Break(
                "hpa: spec.minReplicas",
                GONE,
                f"{_HPA}: minimum of 1 pods is below the lower bound (2); raise its minimum",
            ),
            Break(
                "keda: spec.maxReplicaCount",
                GONE,
                f"{_SCALED}: maximum of 100 pods exceeds the upper bound (20); lower its maximum",
            ),
            Break(
                "keda: spec.minReplicaCount",
                GONE,
                f"{_SCALED}: minimum of 0 pods is below the lower bound (2); raise its minimum",
            ),
        ],
        unknown={"hpa: spec.maxReplicas": _HPA},
    ),
    Case(
        name="targets of autoscalers",
        rule=serving.autoscaler_target,
        given={"server": SERVER, "second": SECOND, "rollout": BLUE, "hpa": AUTOSCALER, "keda": SCALED},
        settings={"workloads": ["ml-serving/elsewhere-*"]},
        also=[
            ("server", GONE),
            ("hpa: spec.scaleTargetRef.name", "elsewhere-a"),
            ("hpa: spec.scaleTargetRef", {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "rank"}),
            ("hpa: spec.scaleTargetRef.apiVersion", GONE),
            ("hpa: spec.scaleTargetRef", {"kind": "Rollout", "name": "blue"}),
        ],
        breaks=[
            Break(
                "hpa: spec.scaleTargetRef.name",
                "chta",
                f"{_HPA}: references Deployment chta, which does not exist in namespace ml-serving; correct"
                " scaleTargetRef",
            ),
            Break(
                "hpa: spec.scaleTargetRef.apiVersion",
                "argoproj.io/v1alpha1",
                f"{_HPA}: references Deployment chat, which does not exist in namespace ml-serving; correct"
                " scaleTargetRef",
            ),
            Break(
                "keda: spec.scaleTargetRef",
                {"kind": "Rollout", "name": "blue"},
                f"{_SCALED}: references Rollout blue, which does not exist in namespace ml-serving; correct"
                " scaleTargetRef",
            ),
            Break(
                "keda: spec.scaleTargetRef",
                {"kind": "StatefulSet", "name": "chat"},
                f"{_SCALED}: references StatefulSet chat, which does not exist in namespace ml-serving; correct"
                " scaleTargetRef",
            ),
        ],
        unknown={"hpa: spec.scaleTargetRef.name": _HPA, "server: metadata.name": (_HPA, _SCALED)},
    ),
    Case(
        name="one autoscaler",
        rule=serving.one_autoscaler,
        given={"server": SERVER, "hpa": AUTOSCALER, "second": SECOND},
        also=[("hpa", SCALED), ("more", RANK)],
        breaks=[
            Break(
                "more",
                SCALED,
                f"{_CHAT}: is scaled by {_HPA} and {_SCALED}; keep one (KEDA creates its own HorizontalPodAutoscaler)",
            )
        ],
        unknown={"hpa: spec.scaleTargetRef.name": _CHAT},
    ),
    Case(
        name="replicas beside an autoscaler",
        rule=serving.replicas_left_out,
        given={"server": SERVER, "hpa": AUTOSCALER, "second": SECOND},
        also=[
            ("server", _live(_NOT_APPLIED, _BY_SCALE)),
            ("server", _live(_UPDATED, _NOT_APPLIED)),
            *(("server", replace(_live(_APPLIED), ignored=(path,))) for path in ("spec.replicas", "spec", "*")),
            ("hpa: spec.scaleTargetRef.name", "elsewhere"),
        ],
        breaks=[
            Break("server: spec.replicas", 3, f"{_CHAT}: {_TOO}"),
            Break("server", _live(_APPLIED, _BY_SCALE), f"{_CHAT}: {_TOO}"),
            Break(
                "more",
                RANK,
                "StatefulSet ml-serving/rank: sets replicas, which ScaledObject ml-serving/rank also sets; remove"
                " spec.replicas",
            ),
        ],
    ),
    Case(
        name="replicas without field managers",
        rule=serving.replicas_left_out,
        given={"server": _live(_UPDATED, _BY_SCALE), "hpa": AUTOSCALER},
        unknown={"hpa: spec.scaleTargetRef.name": _CHAT, "server: metadata.managedFields.1.fieldsV1": _CHAT},
    ),
    Case(
        name="replicas of workloads with an autoscaler outside the stack",
        rule=serving.replicas_left_out,
        given={"server": SERVER},
        settings={"autoscaled": ["ml-serving/*"]},
        breaks=[
            Break(
                "server: spec.replicas",
                3,
                f"{_CHAT}: sets replicas, which an autoscaler outside this stack also sets; remove spec.replicas",
            )
        ],
    ),
)
