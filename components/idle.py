"""Idle GPUs: the CronJob that tells teams about jobs whose GPUs are idle, requeues or cancels them."""

from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pulumi import ResourceOptions
from pulumi_kubernetes.core.v1 import ServiceAccount
from pulumi_kubernetes.meta.v1 import ObjectMetaArgsDict

from gpu_tenancy.model.catalogue.access import Rule
from gpu_tenancy.model.kinds import servers
from gpu_tenancy.model.names import IDLE
from gpu_tenancy.model.plan.idle import ACCOUNT, IDLE_GPUS, IdlePlan

from . import objects
from .objects import Component, Options

SCRIPT: Final = Path(__file__).with_name("reclaim_idle.sh").read_text(encoding="utf-8")
_ROLE: Final = f"gpu-tenancy-{IDLE_GPUS}"
_RULES: Final = (
    Rule(groups=("",), resources=("pods",), verbs=("list",), reason="which pods with GPUs a Workload has"),
    Rule(groups=("",), resources=("events",), verbs=("create",), reason="tell the owner of a job, before and after"),
    Rule(
        groups=("kueue.x-k8s.io",),
        resources=("workloads",),
        verbs=("get", "list", "patch"),
        reason="how long GPUs are idle (an annotation), and stop or requeue the job (spec.active)",
    ),
)


class IdleGpus(Component):
    """The CronJob for jobs of all teams, in a namespace of its own.

    Prometheus is read at its own address, without the account's token. Which pods belong to a Workload is in the
    annotation `kueue.x-k8s.io/workload` that Kueue sets on pods (`getPodSetsInfoFromStatus` in
    https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobframework/reconciler.go).
    """

    def __init__(self, name: str, environment: str, plan: IdlePlan, opts: Options = None) -> None:
        super().__init__("gpu-tenancy:tenancy:IdleGpus", name, opts)
        namespace, inside = objects.namespace_of_jobs(name, IDLE_GPUS, environment, self)
        metadata: ObjectMetaArgsDict = {"name": ACCOUNT.name, "namespace": IDLE_GPUS}
        account = ServiceAccount(f"{name}-account", metadata=metadata, opts=inside)
        role = objects.cluster_role(f"{name}-role", _ROLE, _RULES, self.own)
        server = urlsplit(plan.address)
        variables = {
            "SERVER": f"{server.scheme}://{server.netloc}",
            "QUERY": f"{server.path}/api/v1/query?query=gpu_tenancy:pod_busy_at",
            "ANNOTATION": IDLE,
            "SERVERS": " ".join(servers()),
            "TEAMS": "\n".join(
                f"{team} {idle.then} {idle.after} {idle.below:g} {' '.join(idle.spare)}".rstrip()
                for team, idle in plan.teams.items()
            ),
        }
        pod = ACCOUNT.name, objects.script_container("reclaim", SCRIPT, variables)
        objects.cron_job(f"{name}-job", metadata, "*/5 * * * *", pod, self.after(namespace, account, role))


def bind_idle_gpus(name: str, team: str, opts: ResourceOptions) -> None:
    """Lets the CronJob stop jobs of a team."""
    objects.role_binding(f"{name}-idle-gpus", (team, _ROLE), _ROLE, [ACCOUNT], opts)
