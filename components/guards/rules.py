"""Rules for the pods of tenants. The message of a violation has the value, the rule and the fix."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from gpu_tenancy.model.plan.guards import GuardsPlan

from ..conventions import QUEUE, VOLCANO
from .expressions import (
    CLAIMS,
    CLASS_LABELS,
    CONTAINERS,
    DELETABLE,
    GANG,
    GANG_QUEUE,
    KUEUE_PREFIX,
    LIMITS,
    METADATA,
    PLACES,
    REQUESTS,
    SHARED,
    amounts,
    container_has_gpus,
    containers_have_gpus,
    fact,
    first_of_each,
    is_gpu,
    is_kind,
    kind_of,
    literal,
    number,
    queues,
    requests_gpus,
)
from .images import image_variables
from .kinds import JUDGED, KINDS, Kind
from .policies import ALL, Resources, Rule, exempt, requested_by, resources_of

_JOB_SET: Final = "jobset.x-k8s.io/JobSet"
_POD_GROUP: Final = "scheduling.volcano.sh/PodGroup"
_TRAIN_JOB: Final = "trainer.kubeflow.org/TrainJob"
_OWNERS: Final = (
    "apps/Deployment",
    "apps/ReplicaSet",
    "apps/StatefulSet",
    "batch/Job",
    "/Pod",
)
"""Kinds whose children Kueue does not count again, beside its optional integrations. It trusts the owner reference,
whoever wrote it (`FindAncestorJobManagedByKueue` in
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobframework/reconciler.go)."""
_PARENT: Final = f"{KUEUE_PREFIX}pod-suspending-parent"
"""Annotation by which Kueue's webhooks leave a pod to its StatefulSet or Deployment."""
_PARENTS: Final = {
    "apps/Deployment": "deployment",
    "apps/StatefulSet": "statefulset",
    "leaderworkerset.x-k8s.io/LeaderWorkerSet": "leaderworkerset.x-k8s.io/leaderworkerset",
}
"""The value of that annotation that Kueue's webhooks set in the pod template of a kind, in the user's own request."""
_GROUPS: Final = (
    f"{KUEUE_PREFIX}pod-group-name",
    f"{KUEUE_PREFIX}prebuilt-workload-name",
)
"""Labels or annotations by which Kueue counts a pod as one of a group, or by a Workload that exists already. Of a group
it counts one pod for each value of the annotation role-hash, and keeps a value that a pod has already (`getRoleHash`,
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobs/pod/pod_controller.go)."""
_OWN_LABELS: Final = (QUEUE, f"{KUEUE_PREFIX}priority-class", f"{KUEUE_PREFIX}max-exec-time-seconds")
"""Labels of Kueue that tenants set; all others of a pod are Kueue's own once the pod exists."""
_VISIBLE_DEVICES: Final = (
    "AMD_VISIBLE_DEVICES",
    "NVIDIA_MIG_CONFIG_DEVICES",
    "NVIDIA_MIG_MONITOR_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
)
"""Environment variables by which a container runtime adds GPUs to a container."""
_NO_DEVICES: Final = ("", "none", "void")
"""Their values that add none: https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html"""
_DEVICE_MOUNTS: Final = "/var/run/nvidia-container-devices"
"""Mount path that stands for a list of GPUs: https://github.com/NVIDIA/k8s-device-plugin#configuration-option-details."""


@dataclass(frozen=True, slots=True)
class _Scope:
    """What a rule evaluates.

    Attributes:
        of_trainer: kinds that are evaluated although Kubeflow Trainer creates them.
        of_caches: whether objects that the operator of caches creates are evaluated.
        kinds: of the objects.
    """

    of_trainer: tuple[str, ...] = (_JOB_SET, _POD_GROUP)
    of_caches: bool = False
    kinds: tuple[Kind, ...] = KINDS


_EVERY: Final = _Scope()


def pod_rules(guards: GuardsPlan) -> Iterator[Rule]:
    """The rules about pods, except the one that always denies."""
    yield _queue(guards)
    yield _kueue_metadata(guards)
    yield _release(guards)
    yield _devices(guards)
    if guards.taints:
        yield _toleration(guards)
    yield _scheduling(guards)
    yield _amount(guards)
    if any(bounds.ratios for bounds in guards.teams.values()):
        yield _ratio(guards)
    if guards.registries:
        yield _images(guards)


def _rule(
    guards: GuardsPlan,
    name: str,
    variables: Mapping[str, str],
    faults: tuple[str, ...],
    scope: _Scope = _EVERY,
) -> Rule:
    """A rule about the pods that an object contains, when these change.

    Args:
        guards: the plan.
        name: of the rule.
        variables: of the rule; each can use `SHARED` and those before it.
        faults: names of the variables that are lists of messages.
        scope: what is evaluated.
    """
    return Rule(
        name=name,
        resources=resources_of(scope.kinds),
        conditions=_conditions(guards, scope),
        variables={**SHARED, **variables},
        faults=faults,
        only_if="variables.touched",
    )


def _conditions(guards: GuardsPlan, scope: _Scope) -> dict[str, str]:
    """Excludes what an operator creates for an owner that was evaluated, and changes of admitted objects."""
    makers = requested_by(_all_makers(guards))
    owned = f"(size({_controllers('object', JUDGED)}) > 0)"
    conditions = {
        "not-exempt": f"!{requested_by(guards.exempt)}",
        "not-created-for-an-evaluated-owner": f"!({makers} && (request.operation != 'CREATE' || {owned}))",
    }
    if guards.trainer and scope.of_trainer:
        kinds = literal([key.split("/")[1] for key in scope.of_trainer])
        trainer = requested_by((guards.trainer,))
        conditions["not-created-for-an-evaluated-owner"] = (
            f"{trainer} ? object.kind in {kinds} || !{owned} : {conditions['not-created-for-an-evaluated-owner']}"
        )
    if guards.caches and not scope.of_caches:
        conditions["not-a-cache"] = f"!{requested_by((guards.caches,))}"
    return conditions


def _controllers(of: str, keys: Iterable[str]) -> str:
    """The references of an object to a controller of one of some kinds: a list."""
    return (
        f"{of}.metadata.?ownerReferences.orValue([]).filter(o, o.?controller.orValue(false) &&"
        f" {kind_of('o')} in {literal(list(keys))})"
    )


def _messages(items: str, condition: str, message: str) -> str:
    """A list of messages: one for each of some items `i` that meets a condition."""
    return f"{items}.filter(i, {condition}).map(i, {message})"


def _of_pods(found: str, pods: str = "variables.pods") -> str:
    """The first item that is found in each pod `p`."""
    return first_of_each(f"{pods}.map(p, {found})")


def _of_containers(containers: str, found: str) -> str:
    """The first item that is found in a container `c` of each pod `p`."""
    return _of_pods(first_of_each(f"{containers}.map(c, {found})"))


def _queue(guards: GuardsPlan) -> Rule:
    """GPU workloads must use the LocalQueue of the namespace or a Volcano queue of the team."""
    asks = requests_gpus(guards.names)
    # Trainer's PodGroups are of TrainJobs, which Kueue counts.
    not_trainers = f" && !{requested_by((guards.trainer,))}" if guards.trainer else ""
    unqueued = [kind.key for kind in KINDS if kind.queue_place(guards.frameworks) == "never"]
    by_pod = [kind.key for kind in KINDS if kind.queue_place(guards.frameworks) == "templates"]
    place = (
        f"({is_kind('batch/CronJob')} ? 'spec.jobTemplate.metadata.labels'"
        f" : {is_kind(*by_pod)} ? 'metadata.labels of each pod template with GPUs' : 'metadata.labels')"
    )
    named = "[t.?template.?spec.?schedulerName.orValue(''), g.?schedulerName.orValue('')].filter(s, s != '')"
    default = f"{is_kind('batch.volcano.sh/Job')} ? 'default-scheduler' : '{VOLCANO}'"
    schedulers = f"g.?tasks.orValue([]).map(t, ({named} + [{default}])[0]).filter(s, s != '{VOLCANO}')"
    owners = (*_OWNERS, *(kind.key for kind in KINDS if kind.group not in ("", "apps", "batch")), *guards.external)
    return _rule(
        guards,
        "queue",
        {
            "asks": (
                f"{is_kind(_TRAIN_JOB)} || ({is_kind(_POD_GROUP)}{not_trainers}) || variables.pods.exists(p, {asks})"
            ),
            "queues": queues(guards.frameworks, asks),
            "gang": GANG,
            "gangs": fact("volcano-queues"),
            "unqueued": (
                f"variables.asks && {is_kind(*unqueued)} ? ['requests GPUs, but Kueue does not queue '"
                " + object.kind + 's on this cluster; use a Job, a JobSet or a StatefulSet'] : []"
            ),
            "uncounted": (
                "variables.asks && variables.gang == '' ? "
                + _messages(
                    "variables.queues",
                    "i != request.namespace",
                    "'requests GPUs ' + (i == '' ? 'without a queue' : 'in queue ' + i + ', which is not a queue of"
                    f" this namespace') + '; set label {QUEUE}: ' + request.namespace + ' under ' + {place}",
                )
                + " : []"
            ),
            "astray": (
                "variables.gang != '' && !(variables.gang in variables.gangs)"
                " && (variables.asks || variables.gang != 'default') ? ["
                "'uses Volcano queue ' + variables.gang + ', which is not a queue of this namespace; '"
                " + (size(variables.gangs) == 0 ? 'the team has none: create a Job with label"
                f" {QUEUE}: ' + request.namespace : 'set ' + (size(variables.gangSpecs) > 0 ? 'spec.queue: ' :"
                f" 'annotation {GANG_QUEUE}: ') + variables.gangs.join(' or '))] : []"
            ),
            "annotated": _messages(
                f"{METADATA}.map(m, m.?annotations[?'{GANG_QUEUE}'].orValue('default'))",
                "i != 'default' && !(i in variables.gangs)",
                f"'sets annotation {GANG_QUEUE} to ' + i + ', which is not a queue of this namespace; '"
                " + (size(variables.gangs) == 0 ? 'remove the annotation' : 'set '"
                " + variables.gangs.join(' or '))",
            ),
            "joined": (
                "variables.asks ? "
                + _messages(
                    f"{METADATA}.map(m, m.?annotations[?'scheduling.k8s.io/group-name'].orValue(''))",
                    f"i.startsWith('podgroup-') && !({is_kind('/Pod')} && oldObject != null)",
                    "'joins PodGroup ' + i + ', which Volcano created for another workload; remove annotation"
                    " scheduling.k8s.io/group-name'",
                )
                + " : []"
            ),
            "unscheduled": (
                f"variables.asks ? {first_of_each(f'variables.gangSpecs.map(g, {schedulers})')}"
                ".map(s, 'is in Volcano queue ' + variables.gang + ' but has schedulerName ' + s + ', so the queue does"
                f" not count its GPUs; set schedulerName: {VOLCANO}') : []"
            ),
            "claimed": (
                f"variables.gang != '' && variables.pods.exists(p, {CLAIMS}) ? ['sets resourceClaims, which Volcano"
                " queues do not count; request GPUs under resources'] : []"
            ),
            "forged": (
                f"variables.asks ? {_controllers('object', dict.fromkeys(owners))}.map(o,"
                " 'sets ' + o.kind + ' ' + o.name + ' as its controller, so the queue would not count its GPUs; remove"
                " metadata.ownerReferences') : []"
            ),
        },
        faults=(
            "unqueued",
            "uncounted",
            "astray",
            "annotated",
            "joined",
            "unscheduled",
            "claimed",
            "forged",
        ),
        scope=_Scope(of_trainer=(_POD_GROUP,), of_caches=True),
    )


def _kueue_metadata(guards: GuardsPlan) -> Rule:
    """Only Kueue may admit a pod, and write what it counts a pod by."""
    gates = f"oldObject.spec.?schedulingGates.orValue([]).filter(g, g.name.startsWith('{KUEUE_PREFIX}'))"
    changed = (
        "oldObject.metadata.?{field}.orValue({{}}).filter(k, k.startsWith('{prefix}') && !(k in {own}) &&"
        " object.metadata.?{field}[?k].orValue('') != oldObject.metadata.{field}[k])"
        " + object.metadata.?{field}.orValue({{}}).filter(k, k.startsWith('{prefix}') && !(k in {own}) &&"
        " !(k in oldObject.metadata.?{field}.orValue({{}})))"
    )
    labels, annotations = (
        changed.format(field=name, prefix=KUEUE_PREFIX, own=literal(_OWN_LABELS)) for name in ("labels", "annotations")
    )
    is_update = f"({is_kind('/Pod')} && oldObject != null)"
    parent = f"m.?annotations[?'{_PARENT}'].orValue('')"
    own_parent = " || ".join(f"({is_kind(kind)} && i == '{value}')" for kind, value in _PARENTS.items())
    grouped = f"{literal(_GROUPS)}.filter(k, k in m.?labels.orValue({{}}) || k in m.?annotations.orValue({{}}))"
    asks = f"variables.pods.exists(p, {requests_gpus(guards.names)})"
    return _rule(
        guards,
        "kueue-metadata",
        {
            "ungated": (
                f"{is_update} ? {gates}.filter(g, !object.spec.?schedulingGates.orValue([]).exists(o, o.name =="
                " g.name)).map(g, 'removes scheduling gate ' + g.name + ', which only Kueue may remove; keep it until"
                " Kueue admits the pod') : []"
            ),
            "changed": (
                f"{is_update} ? ({labels} + {annotations}).map(k, 'changes ' + k + ', which only Kueue may change;"
                " leave it as it is') : []"
            ),
            "suspending": (
                f"{is_update} ? [] : "
                + _messages(
                    f"{METADATA}.map(m, {parent})",
                    f"i != '' && !({own_parent})",
                    f"'sets annotation {_PARENT}, by which Kueue leaves pods to another object; remove the annotation'",
                )
            ),
            "grouped": (
                f"!{is_update} && {asks} ? {first_of_each(f'{METADATA}.map(m, {grouped})')}"
                ".map(k, 'sets ' + k + ' on a pod with GPUs, and Kueue would count the GPUs of another pod or Workload;"
                " use a Job or a JobSet') : []"
            ),
        },
        faults=("ungated", "changed", "suspending", "grouped"),
    )


_RAY_JOB: Final = "ray.io/RayJob"
_OUTLIVING: Final = (
    f"{is_kind(_RAY_JOB)} && object.spec.?ttlSecondsAfterFinished.orValue(0) > 0 ? ['sets"
    " spec.ttlSecondsAfterFinished, for which its pods would keep their GPUs when the job has ended and no queue counts"
    " them; remove it']"
    f" : {is_kind(_RAY_JOB)} && object.spec.?deletionStrategy.hasValue() ? ['sets spec.deletionStrategy, by which its"
    " pods could keep their GPUs when the job has ended and no queue counts them; remove it']"
    f" : {is_kind(_RAY_JOB)} && size(object.spec.?clusterSelector.orValue({{}})) > 0 ? ['sets spec.clusterSelector, and"
    " Kueue does not count the pods of such a RayJob; set spec.rayClusterSpec instead']"
    f" : {is_kind('ray.io/RayService')} && object.spec.?upgradeStrategy.?type.orValue('') != 'None' ? ['would run a"
    " second Ray cluster during an upgrade, whose GPUs no queue counts; set spec.upgradeStrategy.type: None']"
    " : []"
)
"""What KubeRay runs beyond what Kueue counts: the pods of a RayJob after its end, the submitter of one without its own
cluster, and a RayService's second cluster. https://github.com/ray-project/kuberay/tree/v1.6.2/ray-operator."""


_WORKER_GROUPS: Final = (
    f"{is_kind('ray.io/RayCluster')} ? object.spec.?workerGroupSpecs.orValue([])"
    f" : {is_kind(_RAY_JOB)} ? object.spec.?rayClusterSpec.?workerGroupSpecs.orValue([])"
    f" : {is_kind('ray.io/RayService')} ? object.spec.?rayClusterConfig.?workerGroupSpecs.orValue([]) : []"
)
"""The worker groups of a kind of KubeRay, of which it runs `minReplicas` if `replicas` is less
(`GetWorkerGroupDesiredReplicas` in
https://github.com/ray-project/kuberay/blob/v1.6.2/ray-operator/controllers/ray/utils/util.go)."""


def _release(guards: GuardsPlan) -> Rule:
    """A pod with GPUs must not be separated from the object that Kueue counts it by: Kueue would free the quota.

    https://kubernetes.io/docs/concepts/architecture/garbage-collection/#orphaned-dependents,
    https://kubernetes.io/docs/concepts/workloads/controllers/job/#specifying-your-own-pod-selector
    """
    # What Kueue does not integrate is counted by its pods themselves, wherever these belong.
    counted = [kind for kind in KINDS if kind.from_template and kind.queue_place(guards.frameworks) == "object"]
    owners = _controllers("oldObject", (kind.key for kind in counted))
    return Rule(
        name="release",
        # Pods are evaluated only when they change.
        resources=(*resources_of(counted, ALL), Resources("", ("pods",), ("UPDATE",))),
        conditions=exempt(guards, _all_makers(guards)),
        variables={
            **DELETABLE,
            "asks": f"{is_kind(_TRAIN_JOB)} || variables.pods.exists(p, {requests_gpus(guards.names)})",
            "orphaning": (
                "variables.asks && request.operation == 'DELETE' && (request.options.?propagationPolicy.orValue('') =="
                " 'Orphan' || request.options.?orphanDependents.orValue(false)) ? ['is deleted without its pods, whose"
                " GPUs no queue would count; delete it without --cascade=orphan'] : []"
            ),
            "finalized": (
                f"variables.asks && object != null && !({is_kind('/Pod')}) && object.metadata.?finalizers.orValue([])"
                ".exists(f, f == 'orphan') ? ['sets finalizer orphan, by which its pods would run without a queue;"
                " remove it'] : []"
            ),
            "selecting": (
                f"variables.asks && object != null && {is_kind('batch/Job')} &&"
                " object.spec.?manualSelector.orValue(false) ? ['sets spec.manualSelector, by which the Job can lose"
                " its pods; remove it'] : []"
            ),
            "outliving": (f"variables.asks && object != null ? ({_OUTLIVING}) : []"),
            "miscounted": (
                f"variables.asks && object != null ? ({_WORKER_GROUPS}).filter(w, w.?replicas.orValue(0) <"
                " w.?minReplicas.orValue(0)).map(w, 'sets minReplicas of worker group ' + w.groupName + ' above its"
                " replicas, and Kueue counts replicas only; set replicas to minReplicas') : []"
            ),
            "owners": (f"{is_kind('/Pod')} && variables.asks ? {owners}.map(o, o.kind + ' ' + o.name) : []"),
            "released": (
                "size(variables.owners) > 0 && (object.metadata.?ownerReferences.orValue([]) !="
                " oldObject.metadata.?ownerReferences.orValue([]) ||"
                " oldObject.metadata.?labels.orValue({}).exists(k, object.metadata.?labels[?k].orValue('') !="
                " oldObject.metadata.labels[k])) ? ['changes labels or owners of a pod with GPUs, so that '"
                " + variables.owners[0] + ' would lose it and no queue would count its GPUs; leave them as they are']"
                " : []"
            ),
        },
        faults=("orphaning", "finalized", "selecting", "outliving", "miscounted", "released"),
    )


def _all_makers(guards: GuardsPlan) -> tuple[str, ...]:
    return guards.makers if guards.trainer is None else (*guards.makers, guards.trainer)


def _devices(guards: GuardsPlan) -> Rule:
    """Containers without GPUs must not get any from the container runtime."""
    every = f"({CONTAINERS} + p.?ephemeralContainers.orValue([]))"
    adds = f"has(e.valueFrom) || !(e.?value.orValue('') in {literal(_NO_DEVICES)})"
    variable = f"e.name in {literal(_VISIBLE_DEVICES)} && ({adds})"
    without = f"{every}.filter(c, !{container_has_gpus(guards.names)})"
    rule = _rule(
        guards,
        "devices",
        {
            "visible": (
                _of_containers(
                    without,
                    f"c.?env.orValue([]).filter(e, {variable}).map(e, 'sets ' + e.name + ' in container '"
                    " + c.?name.orValue('') + ', which requests no GPU; remove the variable or request GPUs')",
                )
            ),
            "mounted": (
                _of_pods(
                    f"{every}.filter(c, c.?volumeMounts.orValue([]).exists(v,"
                    f" v.mountPath.startsWith('{_DEVICE_MOUNTS}'))).map(c, 'mounts {_DEVICE_MOUNTS} in container '"
                    " + c.?name.orValue('') + ', which selects GPUs; remove the mount and request GPUs')"
                )
            ),
            "injected": (
                first_of_each(f"{METADATA}.map(m, m.?annotations.orValue({{}}).filter(k, k.startsWith('cdi.k8s.io/')))")
                + ".map(k, 'sets annotation ' + k + ', which adds devices to containers; remove it and request GPUs')"
            ),
        },
        faults=("visible", "mounted", "injected"),
    )
    return replace(rule, resources=(*rule.resources, Resources("", ("pods/ephemeralcontainers",))))


def _toleration(guards: GuardsPlan) -> Rule:
    """Pods without GPUs must not tolerate the taints of GPU nodes."""
    tolerated = f"t.?key.orValue('') == '' || t.key in {literal(guards.taints)}"
    # A channel is no GPU: a pod that only claims one would keep it from the pods that share memory.
    asks = containers_have_gpus(guards.names) if guards.channels else requests_gpus(guards.names)
    return _rule(
        guards,
        "toleration",
        {
            "tolerating": (
                _of_pods(
                    f"p.?tolerations.orValue([]).filter(t, {tolerated}).map(t,"
                    " 'tolerates ' + (t.?key.orValue('') == '' ? 'every taint' : t.key) + ' but requests no GPU; '"
                    " + (t.?key.orValue('') == '' ? 'set the keys of the taints, without those of GPU nodes'"
                    " : 'remove the toleration'))",
                    f"variables.pods.filter(p, !{asks})",
                )
            ),
        },
        faults=("tolerating",),
    )


def _scheduling(guards: GuardsPlan) -> Rule:
    """Pods must use an allowed scheduler and a priority class of the team, and must not set nodeName."""
    return _rule(
        guards,
        "scheduling",
        {
            "named": fact("schedulers"),
            "schedulers": "size(variables.named) > 0 ? variables.named : ['default-scheduler']",
            "own": fact("priority-classes"),
            "classes": f"size(variables.own) > 0 ? variables.own : {literal(guards.classes)}",
            "required": f"size({fact('priority-class-required')}) > 0",
            "places": PLACES,
            "foreign": (
                "variables.places.map(p, p.?schedulerName.orValue('')).filter(s, s != ''"
                " && !(s in variables.schedulers)).map(s, 'sets schedulerName ' + s + ', which is not allowed in this"
                " namespace; set ' + variables.schedulers.join(' or ') + ', or remove it')"
            ),
            "pinned": (
                f"{is_kind('/Pod')} && oldObject != null ? []"
                " : variables.pods.filter(p, p.?nodeName.orValue('') != '').map(p, 'sets nodeName '"
                " + p.nodeName + ', which bypasses schedulers and taints; remove it and use nodeSelector')"
            ),
            "unknown": (
                "(variables.places.map(p, p.?priorityClassName.orValue('')) +"
                f" {CLASS_LABELS}).filter(n, n != '' && !(n in variables.classes)).map(n, 'uses priority class ' + n"
                " + ', which is not allowed in this namespace; ' + (size(variables.classes) == 0 ? 'remove it'"
                " : 'set one of ' + variables.classes.join(', ')))"
            ),
            "unset": (
                f"variables.required && !({is_kind(_TRAIN_JOB)}) && variables.pods.exists(p,"
                " p.?priorityClassName.orValue('') == '') ? ['sets no priority class, which the quota of this namespace"
                " requires; set priorityClassName: ' + variables.classes.join(' or ')] : []"
            ),
        },
        faults=("foreign", "pinned", "unknown", "unset"),
    )


def _amount(guards: GuardsPlan) -> Rule:
    """A pod must not request more GPUs than the largest node has, nor a container more than the team's maximum."""
    amount = number(f"r in {LIMITS} ? {LIMITS}[r] : r in {REQUESTS} ? {REQUESTS}[r] : 0")
    sidecars = "p.?initContainers.orValue([]).filter(c, c.?restartPolicy.orValue('') == 'Always')"
    running = f"(p.?containers.orValue([]) + {sidecars})"
    total = f"{running}.map(c, {amount}).sum()"
    counts = f"{CONTAINERS}.map(c, {amount})"
    in_container = counts.replace("r in", "b[0] in").replace("[r]", "[b[0]]")
    return _rule(
        guards,
        "amount",
        {
            "largest": f"dyn({literal(guards.max_per_node)})",
            "bounds": amounts("max-gpus-per-container"),
            "unknown": (
                _of_containers(
                    CONTAINERS,
                    f"{LIMITS}.filter(r, {is_gpu(guards.names)} && !(r in variables.largest) &&"
                    f" {number(f'{LIMITS}[r]')} > 0.0)",
                )
                + ".map(r, 'requests ' + r + ', which no node has; ' + (size(variables.largest) == 0"
                " ? 'remove it: the cluster has no GPUs' : 'request ' + variables.largest.map(l, l).join(' or ')))"
            ),
            "excess": (
                _of_pods(
                    f"variables.largest.filter(r, {total} > double(variables.largest[r])"
                    f" || {counts}.exists(a, a > double(variables.largest[r]))).map(r, 'requests '"
                    f" + string(int(({counts} + [{total}]).max())) + ' ' + r + ' in one pod, but the largest node has '"
                    " + string(variables.largest[r]) + '; use more pods with ' + string(variables.largest[r])"
                    " + ' or fewer each')"
                )
            ),
            "over": (
                _of_pods(
                    f"variables.bounds.filter(b, {in_container}.exists(a, a > double(b[1]))).map(b, 'requests '"
                    f" + string(int({in_container}.max())) + ' ' + b[0] + ' in one container, but the maximum in this"
                    " namespace is ' + b[1] + '; use more pods with ' + b[1] + ' or fewer each')"
                )
            ),
        },
        faults=("unknown", "excess", "over"),
        scope=_Scope(of_caches=True),
    )


def _ratio(guards: GuardsPlan) -> Rule:
    """Containers must respect the LimitRange's maximum ratio of limit to request before Kueue admits their job."""
    limit = f"(b[0] in {LIMITS} ? {LIMITS}[b[0]] : variables.defaults.filter(d, d[0] == b[0])[0][1])"
    request = f"{REQUESTS}[b[0]]"
    return _rule(
        guards,
        "ratio",
        {
            "ratios": amounts("max-limit-request-ratio"),
            # A container with a request only gets the LimitRange's default limit; one with a limit only requests the
            # same amount.
            "defaults": amounts("default-limits"),
            "loose": (
                _of_containers(
                    CONTAINERS,
                    f"variables.ratios.filter(b, b[0] in {REQUESTS} &&"
                    f" {number(limit)} > {number(request)} * double(b[1]) * 1.000001)"
                    f".map(b, 'limits ' + b[0] + ' to ' + string({limit}) + ' for a request of '"
                    f" + string({request}) + ', but the maximum ratio in this namespace is ' + b[1] + ', so its pods"
                    " would be rejected after admission; raise the request or lower the limit')",
                )
            ),
        },
        faults=("loose",),
    )


def _images(guards: GuardsPlan) -> Rule:
    """Images must come from an allowed registry, also those of containers that are added to a running pod."""
    rule = _rule(guards, "images", image_variables(guards.registries), faults=("foreign",))
    return replace(rule, resources=(*rule.resources, Resources("", ("pods/ephemeralcontainers",))))


def gpu_requests(guards: GuardsPlan) -> Rule:
    """Rejects GPUs that are limits without requests, in namespaces with a default request of 0 GPUs.

    A pod's requests default to its limits, but Kueue 0.19 counts a workload from its pod template before that, and uses
    the LimitRange's default request of 0: it would be admitted without quota
    (https://github.com/kubernetes-sigs/kueue/issues/15020). This rule always denies; the action of the guards does not
    apply to it.
    """
    missing = f"{LIMITS}.filter(r, r.contains('/') && !(r in {REQUESTS}))"
    rule = _rule(
        guards,
        "gpu-requests",
        {
            "queues": queues(guards.frameworks, requests_gpus(guards.names)),
            "uncounted": (
                f"size({fact('default-gpus')}) == 0 || !({is_kind(_JOB_SET)} ||"
                " variables.queues.exists(q, q != '')) ? [] :"
                f" {_of_containers(CONTAINERS, missing)}.map(r, 'sets ' + r + ' under limits only, and Kueue would"
                " count 0; set the same number under requests')"
            ),
        },
        faults=("uncounted",),
        scope=_Scope(of_caches=True, kinds=tuple(kind for kind in KINDS if kind.from_template)),
    )
    # It is about what Kueue counts, and not about who may do what: so nobody is exempt.
    conditions = {name: text for name, text in rule.conditions.items() if name != "not-exempt"}
    return replace(rule, conditions=conditions, always_denies=True)
