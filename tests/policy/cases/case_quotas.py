"""Cases for `workload_rules.quotas`."""

from typing import Final

from policy_builders import GONE, UNKNOWN, Break, Case, changed

from cases.platform import CLUSTER_QUEUE, CRITICAL, LIMITS, LOCAL_QUEUE, QUOTA, SCOPED
from workload_rules import quotas

_BUDGET: Final = "ResourceQuota ml-serving/budget"
_CRITICAL: Final = "ResourceQuota ml-serving/critical"
_CONTAINERS: Final = "LimitRange ml-serving/containers"
_VALUES: Final = "quota: spec.scopeSelector.matchExpressions.0.values.0"
_GPU: Final = "queue: spec.resourceGroups.0.flavors.0.resources.1"
_SECOND: Final = {
    "name": "a100",
    "resources": [{"name": "nvidia.com/gpu", "nominalQuota": 1}, {"name": "cpu", "nominalQuota": 900}],
}
_STORAGE: Final = {
    "persistentvolumeclaims": 3,
    "requests.storage": "1Ti",
    "count/persistentvolumeclaims": 3,
    "fast.storageclass.storage.k8s.io/requests.storage": "1Ti",
}
_GOLD: Final = {"scopeName": "VolumeAttributesClass", "operator": "In", "values": ["gold"]}
_ITEM: Final = "limits: spec.limits.0"
_ZERO: Final = "add default and defaultRequest {nvidia.com/gpu: 0}"
_NO_QUOTA: Final = changed({"it": QUOTA}, "it: spec.hard.'requests.nvidia.com/gpu'", 0)["it"]
_NO_COHORT: Final = changed({"queue": CLUSTER_QUEUE}, "queue: spec.cohortName", GONE)

CASES: Final = (
    Case(
        name="the prefix of extended resources",
        rule=quotas.quota_requests_prefix,
        given={"quota": QUOTA},
        also=[
            ("quota: spec.hard.services", 3),
            ("quota: spec.hard.'kubernetes.io/batch-cpu'", 3),
            ("quota: spec.hard.'count/jobs.batch'", 3),
            ("quota: spec.hard.'fast.storageclass.storage.k8s.io/requests.storage'", "1Ti"),
        ],
        breaks=[
            Break(
                "quota: spec.hard.'limits.nvidia.com/gpu'",
                3,
                f"{_BUDGET}: limits.nvidia.com/gpu is not counted; use requests.nvidia.com/gpu",
            ),
            Break(
                "quota: spec.hard.'nvidia.com/mig-1g.10gb'",
                3,
                f"{_BUDGET}: nvidia.com/mig-1g.10gb is not counted; use requests.nvidia.com/mig-1g.10gb",
            ),
        ],
        unknown={"quota: spec.hard": _BUDGET},
    ),
    Case(
        name="keys of a quota with a scope",
        rule=quotas.quota_scopes,
        given={"quota": SCOPED, "free": QUOTA},
        also=[
            ("free: spec.hard.services", 3),
            ("free: spec", {"hard": _STORAGE, "scopes": ["VolumeAttributesClass"]}),
            ("quota: spec.hard.'count/pods'", 3),
            ("quota: spec.hard.'limits.memory'", "1Ti"),
            ("quota: metadata.namespace", "gpu-operator"),
        ],
        breaks=[
            Break(
                "quota: spec.hard.services",
                3,
                f"{_CRITICAL}: scope PriorityClass counts pods, cpu, memory and requests of GPUs, not services;"
                " move it to a separate quota",
            ),
            Break(
                "quota: spec.hard.'nvidia.com/gpu'",
                3,
                f"{_CRITICAL}: scope PriorityClass counts pods, cpu, memory and requests of GPUs, not nvidia.com/gpu;"
                " move it to a separate quota",
            ),
            Break(
                "quota: spec.hard",
                {"pods": 3, "requests.storage": "1Ti", "count/jobs.batch": 4},
                f"{_CRITICAL}: scope PriorityClass counts pods, cpu, memory and requests of GPUs, not"
                " count/jobs.batch, requests.storage; move them to a separate quota",
            ),
            Break(
                "free: spec.scopes",
                ["BestEffort"],
                f"{_BUDGET}: scope BestEffort counts pods, not limits.memory, requests.cpu,"
                " requests.nvidia.com/gpu; move them to a separate quota",
            ),
            Break(
                "free: spec.scopes",
                ["VolumeAttributesClass"],
                f"{_BUDGET}: scope VolumeAttributesClass counts claims and storage, not limits.memory,"
                " requests.cpu, requests.nvidia.com/gpu; move them to a separate quota",
            ),
        ],
        unknown={"quota: spec.scopeSelector.matchExpressions.0.scopeName": _CRITICAL},
    ),
    Case(
        name="priority classes of a scope",
        rule=quotas.quota_scope_classes,
        given={"quota": SCOPED, "class": CRITICAL},
        also=[
            (_VALUES, "system-node-critical"),
            ("class", GONE),
            ("quota: spec.scopes", ["PriorityClass"]),
            ("quota: spec.scopeSelector.matchExpressions.0", _GOLD),
        ],
        breaks=[
            Break(
                _VALUES,
                "ml-critcal",
                f"{_CRITICAL}: scope references PriorityClass ml-critcal, which does not exist in this stack;"
                " correct the name or create it",
            )
        ],
        unknown={_VALUES: _CRITICAL, "class: metadata.name": _CRITICAL},
    ),
    Case(
        name="priority classes created outside the stack",
        rule=quotas.quota_scope_classes,
        given={"quota": SCOPED},
        settings={"classes": ["ml-*"]},
        breaks=[
            Break(
                _VALUES,
                "critical",
                f"{_CRITICAL}: scope references PriorityClass critical, which does not exist in this stack; correct"
                " the name or create it",
            )
        ],
    ),
    Case(
        name="defaults of GPUs",
        rule=quotas.limit_range_gpus,
        given={"limits": LIMITS},
        also=[
            (f"{_ITEM}.max.'nvidia.com/gpu'", GONE),
            (f"{_ITEM}.defaultRequest.'nvidia.com/gpu'", GONE),
            ("limits: spec.limits.1", {"type": "Pod", "max": {"nvidia.com/gpu": 16}}),
            ("limits: spec.limits.1", {"type": "PersistentVolumeClaim", "max": {"storage": "1Ti"}}),
            ("limits: spec.limits.1", {"type": "PersistentVolumeClaim", "max": UNKNOWN}),
        ],
        breaks=[
            Break(
                f"{_ITEM}.default.'nvidia.com/gpu'",
                GONE,
                f"{_CONTAINERS}: max of nvidia.com/gpu is the default for containers that request none; {_ZERO}",
            ),
            Break(
                f"{_ITEM}.default.'nvidia.com/gpu'",
                1,
                f"{_CONTAINERS}: default 1 of nvidia.com/gpu applies to containers that request none; set 0",
            ),
            Break(
                _ITEM,
                {"type": "Container", "defaultRequest": {"nvidia.com/gpu": 1}},
                f"{_CONTAINERS}: defaultRequest 1 of nvidia.com/gpu applies to containers that request none; set 0",
            ),
            Break(
                f"{_ITEM}.min",
                {"nvidia.com/gpu": 1},
                f"{_CONTAINERS}: a minimum of 1 nvidia.com/gpu rejects every Container that requests none; remove"
                " the minimum",
            ),
            Break(
                _ITEM,
                {"type": "Pod", "max": {"nvidia.com/gpu": 16}},
                f"{_CONTAINERS}: max of nvidia.com/gpu rejects pods that request none; add a Container item with"
                " default and defaultRequest {nvidia.com/gpu: 0}",
            ),
        ],
        unknown={f"{_ITEM}.default.'nvidia.com/gpu'": _CONTAINERS},
    ),
    Case(
        name="defaults of what a quota counts",
        rule=quotas.quota_defaults,
        given={"quota": QUOTA, "limits": LIMITS},
        also=[
            (f"{_ITEM}.default.memory", "16Gi"),
            (f"{_ITEM}.defaultRequest", {}),
            (_ITEM, {"type": "Container", "max": {"cpu": 32, "memory": "64Gi"}}),
            *(
                (_ITEM, {"type": "Container", "default": {"memory": "8Gi", **default}, **more})
                for default, more in (
                    ({}, {"defaultRequest": {"cpu": 1}}),
                    ({"cpu": 2}, {}),
                    ({}, {"min": {"cpu": 1}}),
                )
            ),
            ("limits: spec.limits.1", {"type": "PersistentVolumeClaim", "max": {"storage": "1Ti"}}),
            ("quota: spec.hard", {"requests.nvidia.com/gpu": 8}),
        ],
        breaks=[
            Break(
                "limits: metadata.namespace",
                "ml-research",
                f"{_BUDGET}: requires limits.memory, requests.cpu, but no LimitRange in ml-serving sets"
                " default.memory, defaultRequest.cpu; add one",
            ),
            Break(
                _ITEM,
                {"type": "Pod", "max": {"cpu": 32, "memory": "64Gi"}},
                f"{_BUDGET}: requires limits.memory, requests.cpu, but no LimitRange in ml-serving sets"
                " default.memory, defaultRequest.cpu; add one",
            ),
            Break(
                f"{_ITEM}.default.memory",
                GONE,
                f"{_BUDGET}: requires limits.memory, requests.cpu, but no LimitRange in ml-serving sets"
                " default.memory; add one",
            ),
        ],
        unknown={"limits: metadata.namespace": _BUDGET, "limits: spec.limits": _BUDGET},
    ),
    Case(
        name="a quota and its queue",
        rule=quotas.quota_not_below_queue,
        given={"quota": QUOTA, "queue": CLUSTER_QUEUE, "local": LOCAL_QUEUE},
        also=[
            ("quota: spec.hard.'requests.nvidia.com/gpu'", 40),
            ("queue: spec.cohortName", GONE),
            ("quota: spec", {"hard": {"requests.nvidia.com/gpu": 8}, "scopes": ["NotTerminating"]}),
            ("quota: spec.hard.'nvidia.com/gpu'", 1),
            ("local: metadata.namespace", "ml-research"),
        ],
        breaks=[
            Break(
                "quota: spec.hard.'requests.nvidia.com/gpu'",
                8,
                f"{_BUDGET}: requests.nvidia.com/gpu is 8, but ClusterQueue serving admits up to 12; raise the"
                " quota, or lower nominalQuota and borrowingLimit",
            ),
            Break(
                "queue: spec.resourceGroups.0.flavors.1",
                _SECOND,
                f"{_BUDGET}: requests.nvidia.com/gpu is 12, but ClusterQueue serving can borrow nvidia.com/gpu"
                " without a limit; set borrowingLimit in each of its flavors",
            ),
            Break(
                f"{_GPU}.borrowingLimit",
                GONE,
                f"{_BUDGET}: requests.nvidia.com/gpu is 12, but ClusterQueue serving can borrow nvidia.com/gpu"
                " without a limit; set borrowingLimit in each of its flavors",
            ),
        ],
        unknown={
            f"{_GPU}.nominalQuota": _BUDGET,
            "local: spec.clusterQueue": _BUDGET,
            "quota: spec.hard.'requests.nvidia.com/gpu'": _BUDGET,
        },
    ),
    Case(
        name="no quota, of a queue that has none",
        rule=quotas.quota_not_below_queue,
        given={"quota": _NO_QUOTA, "local": LOCAL_QUEUE, **changed(_NO_COHORT, f"{_GPU}.nominalQuota", 0)},
        also=[(f"{_GPU}.nominalQuota", GONE), ("quota: spec.hard.'requests.nvidia.com/gpu'", None)],
        breaks=[
            Break(
                place,
                to,
                f"{_BUDGET}: requests.nvidia.com/gpu is 0, but ClusterQueue serving admits up to {total}; raise the"
                " quota, or lower nominalQuota and borrowingLimit",
            )
            for place, to, total in ((f"{_GPU}.nominalQuota", 1, 1), ("queue: spec.cohort", "groups", 4))
        ],
    ),
    Case(
        name="a namespace that shares its queue",
        rule=quotas.quota_not_below_queue,
        given=changed(
            {"quota": QUOTA, "queue": CLUSTER_QUEUE, "local": LOCAL_QUEUE},
            "quota: spec.hard.'requests.nvidia.com/gpu'",
            8,
        ),
        settings={"shared": ["ml-*"]},
    ),
)
