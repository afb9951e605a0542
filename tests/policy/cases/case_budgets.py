"""Cases for `workload_rules.budgets`."""

from typing import Any, Final

from policy_builders import GONE, UNKNOWN, Break, Case, changed, manifest

from cases.platform import AUTOSCALER, BUDGET, QUOTA, SCOPED, SECOND, SERVER
from workload_rules import budgets

ROLLOUT: Final = manifest("""
apiVersion: argoproj.io/v1alpha1
kind: Rollout
metadata: {name: blue, namespace: ml-serving}
spec:
  replicas: 2
  strategy: {canary: {maxSurge: 1}}
  template: {spec: {containers: [{name: server, resources: {limits: {nvidia.com/gpu: 1}}}]}}
""")
GROUPS: Final = manifest("""
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: large, namespace: ml-serving, labels: {app: large}}
spec:
  replicas: 2
  rolloutStrategy: {type: RollingUpdate, rollingUpdateConfiguration: {maxSurge: 0, maxUnavailable: 1}}
  leaderWorkerTemplate:
    size: 3
    leaderTemplate:
      metadata: {labels: {app: large}}
      spec: {containers: [{name: server, resources: {limits: {nvidia.com/gpu: 2}}}]}
    workerTemplate:
      metadata: {labels: {app: large}}
      spec: {containers: [{name: server, resources: {limits: {nvidia.com/gpu: 2}}}]}
""")
OF_GROUPS: Final = manifest("""
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: large, namespace: ml-serving}
spec:
  scaleTargetRef: {apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, name: large}
  minReplicas: 1
  maxReplicas: 3
""")
_KEEPS_ALL: Final = changed({"it": SERVER}, "it: spec.strategy.rollingUpdate.maxUnavailable", 0)["it"]
_CLASSLESS: Final = changed({"it": SECOND}, "it: spec.template.spec.priorityClassName", GONE)["it"]
_PLENTY: Final = {"requests.amd.com/gpu": 9, "requests.nvidia.com/gpu": 9}
_TWO_RESOURCES: Final = {
    "priorityClassName": "ml-critical",
    "containers": [{"name": "server", "resources": {"limits": {"nvidia.com/gpu": 1, "amd.com/gpu": 3}}}],
}
_GROUPS: Final = "LeaderWorkerSet ml-serving/large"
_TEMPLATE: Final = "groups: spec.leaderWorkerTemplate"
_ALL: Final = {"server": SERVER, "second": SECOND, "hpa": AUTOSCALER, "quota": QUOTA}
_QUOTA: Final = "ResourceQuota ml-serving/budget"
_CHAT: Final = "Deployment ml-serving/chat"
_BUDGET: Final = "PodDisruptionBudget ml-serving/chat"
_STRATEGY: Final = "server: spec.strategy"
_MORE: Final = "raise requests.nvidia.com/gpu, or lower the autoscaler maximums"
_HARD: Final = "quota: spec.hard.'requests.nvidia.com/gpu'"
_ONE: Final = "set maxUnavailable: 1 instead"


def _added(surge: int, admits: int = 12, of: str = _QUOTA) -> str:
    return (
        f"{_CHAT}: a rollout at maximum replicas adds {surge} pods of 2 nvidia.com/gpu to the 12 in use, but {of}"
        f" allows {admits}; set maxUnavailable to 1 or more there, or raise the quota to {12 + 2 * surge}"
    )


def _scoped(gpus: int, expression: dict[str, Any]) -> dict[str, Any]:
    """A quota of the pods that an expression matches."""
    selector = {"matchExpressions": [{"scopeName": "PriorityClass", **expression}]}
    return {"hard": {"requests.nvidia.com/gpu": gpus}, "scopeSelector": selector}


CASES: Final = (
    Case(
        name="serving workloads at maximum replicas",
        rule=budgets.autoscaler_maximum_fits,
        given=_ALL,
        also=[
            ("quota: metadata.namespace", "ml-research"),
            ("quota: spec.hard", {"requests.cpu": 1, "nvidia.com/gpu": 1}),
            ("quota: spec.hard.'requests.cpu'", UNKNOWN),
            ("quota: spec.scopes", ["Terminating"]),
            ("quota: spec.scopes", ["BestEffort"]),
            ("server: metadata.namespace", "ml-research"),
        ],
        breaks=[
            Break(
                "hpa: spec.maxReplicas",
                6,
                f"{_QUOTA}: quota is 12 nvidia.com/gpu, but serving workloads need up to 14 (chat 6 pods of 2, rank"
                f" 2 pods of 1); {_MORE}",
            ),
            Break(
                "second: spec.replicas",
                3,
                f"{_QUOTA}: quota is 12 nvidia.com/gpu, but serving workloads need up to 13 (chat 5 pods of 2, rank"
                f" 3 pods of 1); {_MORE}",
            ),
            Break(
                _HARD,
                11,
                f"{_QUOTA}: quota is 11 nvidia.com/gpu, but serving workloads need up to 12 (chat 5 pods of 2, rank"
                f" 2 pods of 1); {_MORE}",
            ),
            *(
                Break(
                    _HARD,
                    nothing,
                    f"{_QUOTA}: quota is 0 nvidia.com/gpu, but serving workloads need up to 12 (chat 5 pods of 2, rank"
                    f" 2 pods of 1); {_MORE}",
                )
                for nothing in (0, None)
            ),
        ],
        unknown={"hpa: spec.maxReplicas": _QUOTA, "second: spec.replicas": _QUOTA, _HARD: _QUOTA},
    ),
    Case(
        name="serving workloads with the priority classes of a quota",
        rule=budgets.autoscaler_maximum_fits,
        given={**_ALL, "quota": SCOPED},
        also=[
            ("second: spec.template.spec.priorityClassName", "ml-low"),
            ("quota: spec.scopeSelector.matchExpressions.0.operator", "NotIn"),
            *(("quota: spec", _scoped(11, {"operator": operator})) for operator in ("DoesNotExist", "Gt")),
            ("quota: spec", _scoped(11, {"operator": "NotIn", "values": ["ml-critical"]})),
            ("quota: spec", _scoped(11, {"scopeName": "Terminating", "operator": "Exists"})),
        ],
        breaks=[
            *(
                Break(
                    "quota: spec",
                    _scoped(11, expression),
                    "ResourceQuota ml-serving/critical: quota is 11 nvidia.com/gpu, but serving workloads need up to 12"
                    f" (chat 5 pods of 2, rank 2 pods of 1); {_MORE}",
                )
                for expression in (
                    {"operator": "Exists"},
                    {"operator": "NotIn", "values": ["ml-low"]},
                    {"scopeName": "NotTerminating", "operator": "Exists"},
                    {"scopeName": "NotBestEffort", "operator": "Exists"},
                )
            ),
            Break(
                _HARD,
                11,
                "ResourceQuota ml-serving/critical: quota is 11 nvidia.com/gpu, but serving workloads need up to 12"
                f" (chat 5 pods of 2, rank 2 pods of 1); {_MORE}",
            ),
        ],
        unknown={"second: spec.template.spec.priorityClassName": "ResourceQuota ml-serving/critical"},
    ),
    Case(
        name="serving workloads without a priority class",
        rule=budgets.autoscaler_maximum_fits,
        given={"second": _CLASSLESS, "quota": SCOPED},
        also=[("quota: spec", _scoped(1, {"operator": "Exists"}))],
        breaks=[
            Break(
                "quota: spec",
                _scoped(1, {"operator": "DoesNotExist"}),
                "ResourceQuota ml-serving/critical: quota is 1 nvidia.com/gpu, but serving workloads need up to 2"
                f" (rank 2 pods of 1); {_MORE}",
            )
        ],
    ),
    Case(
        name="pods that a rollout adds",
        rule=budgets.surge_fits,
        given=_ALL | {"server": _KEEPS_ALL},
        also=[
            (_STRATEGY, GONE),  # Then 25 % are unavailable, which is one.
            (_STRATEGY, {"type": "Recreate"}),
            (f"{_STRATEGY}.rollingUpdate", {"maxSurge": 1, "maxUnavailable": 1}),
            (f"{_STRATEGY}.rollingUpdate", {"maxSurge": 1, "maxUnavailable": "20%"}),
            ("quota", GONE),
            (_HARD, 11),
            (_HARD, UNKNOWN),
            ("rollout", ROLLOUT),
            ("second: spec.replicas", 0),
        ],
        breaks=[
            Break(f"{_STRATEGY}.rollingUpdate.maxSurge", GONE, _added(2)),
            Break(f"{_STRATEGY}.rollingUpdate", {"maxSurge": 1, "maxUnavailable": "19%"}, _added(1)),
            Break(f"{_STRATEGY}.rollingUpdate.maxSurge", 1, _added(1)),
            Break(f"{_STRATEGY}.rollingUpdate.maxSurge", "41%", _added(3)),
            Break(f"{_STRATEGY}.rollingUpdate.maxSurge", "10%", _added(1)),
        ],
        unknown={f"{_STRATEGY}.rollingUpdate.maxSurge": _CHAT},
    ),
    Case(
        name="pods that a rollout of another kind of workload adds",
        rule=budgets.surge_fits,
        given={"rollout": ROLLOUT, "quota": changed({"quota": QUOTA}, _HARD, 3)["quota"]},
        also=[
            ("rollout: spec.replicas", 0),
            ("rollout: spec.replicas", 4),
            ("quota: spec.hard", {"requests.cpu": 1}),
        ],
        breaks=[
            Break(
                "rollout: spec.strategy",
                {"blueGreen": {}},
                "Rollout ml-serving/blue: a rollout at maximum replicas adds 2 pods of 1 nvidia.com/gpu to the 2 in"
                f" use, but {_QUOTA} allows 3; set maxUnavailable to 1 or more there, or raise the quota to 4",
            ),
            Break(
                "rollout: spec.strategy.canary",
                {"maxSurge": "100%"},
                "Rollout ml-serving/blue: a rollout at maximum replicas adds 2 pods of 1 nvidia.com/gpu to the 2 in"
                f" use, but {_QUOTA} allows 3; set maxUnavailable to 1 or more there, or raise the quota to 4",
            ),
        ],
        unknown={"quota: spec.hard": "Rollout ml-serving/blue"},
    ),
    Case(
        name="quotas of other pods and GPUs, each with what it has in use",
        rule=budgets.surge_fits,
        given={
            "rollout": changed({"it": ROLLOUT}, "it: spec.template.spec", _TWO_RESOURCES)["it"],
            "second": _CLASSLESS,
            "quota": changed({"it": QUOTA}, "it: spec.hard", _PLENTY)["it"],
            "scoped": SCOPED,
        },
        breaks=[
            Break(
                f"{quota}: spec.hard",
                _PLENTY | {f"requests.{gpu}": in_use},
                f"Rollout ml-serving/blue: a rollout at maximum replicas adds 1 pods of {each} {gpu} to the {in_use} in"
                f" use, but ResourceQuota ml-serving/{name} allows {in_use}; set maxUnavailable to 1 or more there, or"
                f" raise the quota to {in_use + each}",
            )
            for quota, name, gpu, each, in_use in (
                ("quota", "budget", "nvidia.com/gpu", 1, 4),
                ("quota", "budget", "amd.com/gpu", 3, 6),
                ("scoped", "critical", "nvidia.com/gpu", 1, 2),
            )
        ],
    ),
    Case(
        name="LeaderWorkerSets at maximum replicas",
        rule=budgets.autoscaler_maximum_fits,
        given={"groups": GROUPS, "quota": QUOTA},
        also=[
            (f"{_TEMPLATE}.leaderTemplate", GONE),  # Then the leader has the workers' template.
            (f"{_TEMPLATE}.workerTemplate.spec.containers.0.resources", GONE),
            ("groups: spec.replicas", GONE),
        ],
        breaks=[
            Break(
                "hpa",
                OF_GROUPS,
                f"{_QUOTA}: quota is 12 nvidia.com/gpu, but serving workloads need up to 18 (large 3 pods of 2, large"
                f" 6 pods of 2); {_MORE}",
            ),
            Break(
                f"{_TEMPLATE}.size",
                4,
                f"{_QUOTA}: quota is 12 nvidia.com/gpu, but serving workloads need up to 16 (large 2 pods of 2, large"
                f" 6 pods of 2); {_MORE}",
            ),
        ],
        unknown={f"{_TEMPLATE}.size": _QUOTA},
    ),
    Case(
        name="a group without a size is its leader",
        rule=budgets.autoscaler_maximum_fits,
        given={"groups": changed({"it": GROUPS}, "it: spec.leaderWorkerTemplate.size", GONE)["it"], "quota": QUOTA},
        breaks=[
            Break(
                _HARD,
                3,
                f"{_QUOTA}: quota is 3 nvidia.com/gpu, but serving workloads need up to 4 (large 2 pods of 2, large"
                f" 0 pods of 2); {_MORE}",
            )
        ],
    ),
    Case(
        name="groups that a rollout adds",
        rule=budgets.surge_fits,
        given={"groups": GROUPS, "quota": QUOTA},
        also=[
            ("groups: spec.rolloutStrategy", GONE),
            ("groups: spec.rolloutStrategy.rollingUpdateConfiguration", {"maxSurge": "50%", "maxUnavailable": 1}),
            (_HARD, 18),
        ],
        breaks=[
            Break(
                "groups: spec.rolloutStrategy.rollingUpdateConfiguration",
                {"maxSurge": "50%", "maxUnavailable": 0},
                f"{_GROUPS}: a rollout at maximum replicas adds 1 groups of 6 nvidia.com/gpu to the 12 in use, but"
                f" {_QUOTA} allows 12; set maxUnavailable to 1 or more there, or raise the quota to 18",
            )
        ],
        unknown={"groups: spec.rolloutStrategy": _GROUPS},
    ),
    Case(
        name="groups whose workers alone have GPUs",
        rule=budgets.surge_fits,
        given={
            "groups": changed({"it": GROUPS}, "it: spec.leaderWorkerTemplate.leaderTemplate.spec.containers", [])["it"],
            "quota": changed({"it": QUOTA}, "it: spec.hard", {"requests.nvidia.com/gpu": 8})["it"],
        },
        also=[(f"{_TEMPLATE}.size", 1)],
        breaks=[
            Break(
                "groups: spec.rolloutStrategy.rollingUpdateConfiguration",
                {"maxSurge": 1, "maxUnavailable": 0},
                f"{_GROUPS}: a rollout at maximum replicas adds 1 groups of 4 nvidia.com/gpu to the 8 in use, but"
                f" {_QUOTA} allows 8; set maxUnavailable to 1 or more there, or raise the quota to 12",
            )
        ],
    ),
    Case(
        name="PodDisruptionBudgets that allow an eviction",
        rule=budgets.disruption_budget_lets_go,
        given={"server": SERVER, "hpa": AUTOSCALER, "budget": BUDGET},
        also=[
            ("budget: spec.maxUnavailable", "1%"),
            ("budget: spec", {"minAvailable": 1, "selector": {"matchLabels": {"app": "chat"}}}),
            ("budget: spec", {"minAvailable": "50%", "selector": {"matchLabels": {"app": "chat"}}}),
            ("budget: spec", {"minAvailable": 100, "selector": {"matchLabels": {"app": "else"}}}),
            ("budget: spec", {"selector": {}}),
        ],
        breaks=[
            Break(
                "budget: spec.maxUnavailable",
                0,
                (f"{_BUDGET}: maxUnavailable is 0, so no pod can be evicted; set it to 1"),
            ),
            Break(
                "budget: spec.maxUnavailable",
                "0%",
                (f"{_BUDGET}: maxUnavailable is 0%, so no pod can be evicted; set it to 1"),
            ),
            Break(
                "budget: spec",
                {"minAvailable": "100%", "selector": {"matchLabels": {"app": "chat"}}},
                f"{_BUDGET}: minAvailable is 100%, so no pod can be evicted; {_ONE}",
            ),
            Break(
                "budget: spec",
                {"minAvailable": 2, "selector": {"matchLabels": {"app": "chat"}}},
                f"{_BUDGET}: minAvailable is 2 and the minimum number of pods of {_CHAT} is 2, so no pod"
                f" can be evicted; {_ONE}",
            ),
            Break(
                "budget: spec",
                {"minAvailable": "51%", "selector": {}},
                f"{_BUDGET}: minAvailable is 51% and the minimum number of pods of {_CHAT} is 2, so no pod"
                f" can be evicted; {_ONE}",
            ),
        ],
        unknown={"budget: spec.maxUnavailable": _BUDGET},
    ),
    Case(
        name="PodDisruptionBudgets with minAvailable",
        rule=budgets.disruption_budget_lets_go,
        given=changed(
            {"server": SERVER, "hpa": AUTOSCALER, "budget": BUDGET},
            "budget: spec",
            {"minAvailable": 1, "selector": {"matchLabels": {"app": "chat"}}},
        ),
        also=[("hpa: spec.minReplicas", 0)],
        breaks=[
            Break(
                "hpa",
                GONE,
                f"{_BUDGET}: minAvailable is 1 and the minimum number of pods of {_CHAT} is 1, so no pod"
                f" can be evicted; {_ONE}",
            )
        ],
        unknown={"budget: spec.minAvailable": _BUDGET, "hpa: spec.minReplicas": _BUDGET},
    ),
)
