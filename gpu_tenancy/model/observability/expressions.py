"""The PromQL that dashboards and alerts share, written once for the GPU resources of a stack."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_APPLICATION_XIDS: Final = (13, 31, 43, 45, 68, 109)
"""XIDs that a program causes, not its GPU: NVIDIA's own health check passes over them too.
https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/blob/main/cmd/gpu-kubelet-plugin/device_health.go (2026-08)."""
_WITHIN: Final = "namespace=~"


def alternatives(names: Sequence[str]) -> str:
    """A regular expression of Prometheus' that matches these names and no others, for between quotes.

    Dots stand in brackets: a backslash would have to be doubled in PromQL.
    """
    return "|".join(name.replace(".", "[.]") for name in names)


def state_metric_name(resource: str) -> str:
    """How kube-state-metrics writes a resource in metrics of nodes and pods: `nvidia.com/gpu` as `nvidia_com_gpu`."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", resource)


@dataclass(frozen=True, slots=True)
class Expressions:
    """Expressions on the GPUs of a stack.

    Attributes:
        resources: by which pods ask for GPUs, such as `nvidia.com/gpu`.
        teams: namespaces of teams.
    """

    resources: tuple[str, ...]
    teams: tuple[str, ...]

    @property
    def raw(self) -> str:
        """Matcher of Kueue's label `resource`, which keeps the raw name."""
        return f'resource=~"{alternatives(self.resources)}"'

    @property
    def written(self) -> str:
        """Matcher of kube-state-metrics' label `resource` in metrics of nodes and pods."""
        return f'resource=~"{alternatives([state_metric_name(name) for name in self.resources])}"'

    @property
    def budgets(self) -> str:
        """Matcher of kube-state-metrics' label `resource` in metrics of quotas, which keeps the raw name."""
        return f'resource=~"{alternatives([f"requests.{name}" for name in self.resources])}"'

    @property
    def in_teams(self) -> str:
        """Matcher of the label `namespace`."""
        return f'{_WITHIN}"{alternatives(self.teams)}"'

    def capacity(self, more: str = "") -> str:
        """GPUs by node, healthy or not."""
        return f"sum by (node) (kube_node_status_capacity{{{self.written}{more}}})"

    def allocatable(self, more: str = "") -> str:
        """GPUs that pods can have, by node."""
        return f"sum by (node) (kube_node_status_allocatable{{{self.written}{more}}})"

    def unhealthy(self, more: str = "") -> str:
        """GPUs of nodes that are not ready, or whose device plugin withholds some, by node."""
        unready = f'kube_node_status_condition{{condition="Ready", status="true"{more}}} == 0'
        return f"{self.capacity(more)} > {self.allocatable(more)} or {self.capacity(more)} > 0 and on (node) {unready}"

    def held(self, more: str = "") -> str:
        """GPUs of each container that has a node and has not ended."""
        lives = 'max by (namespace, pod) (kube_pod_status_phase{phase=~"Pending|Running"} == 1)'
        asked = f'kube_pod_container_resource_requests{{{self.written}, node!=""{more}}}'
        return f"{asked} * on (namespace, pod) group_left () {lives}"

    @staticmethod
    def of_pods(metric: str, more: str = "") -> str:
        """A metric of dcgm-exporter with its pod's own namespace and name under the labels of kube-state-metrics.

        A scrape without `honorLabels`, as the GPU Operator's chart sets it, moves them to `exported_…`.
        """
        found = f'{metric}{{exported_pod!=""{more}}}'
        spaces = f'label_replace({found}, "namespace", "$1", "exported_namespace", "(.+)")'
        return f'label_replace({spaces}, "pod", "$1", "exported_pod", "(.+)")'

    @staticmethod
    def with_node(series: str) -> str:
        """Dcgm-exporter's series with the node under the label of kube-state-metrics.

        Up to 4.5.3, which GPU Operator 26.3.3 brings, it is `Hostname`, and `hostname` on the main branch after it
        (https://github.com/NVIDIA/dcgm-exporter/pull/655, 2026-05-12). A label that is not there is empty.
        """
        return f'label_join({series}, "node", "", "Hostname", "hostname")'

    def by_node(self, metric: str, how: str, more: str = "") -> str:
        """A metric of dcgm-exporter by node, of GPU nodes that `more` picks."""
        return f"{how} by (node) ({self.with_node(metric)}) and on (node) {self.capacity(more)}"

    @staticmethod
    def by_job(of_pods: str, how: str) -> str:
        """What pods have, by the Job that made them."""
        made = 'max by (namespace, pod, created_by_name) (kube_pod_info{created_by_kind="Job"})'
        joined = f"{of_pods} * on (namespace, pod) group_left (created_by_name) {made}"
        return f"{how} by (namespace, created_by_name) ({joined})"

    def quota(self, metric: str, more: str = "") -> str:
        """A metric of Kueue's queues by queue, flavor and resource, whichever replica says it."""
        return f"max by (cluster_queue, flavor, resource) ({metric}{{{self.raw}{more}}})"

    def nominal(self, more: str = "") -> str:
        """What each queue is guaranteed."""
        return self.quota("kueue_cluster_queue_nominal_quota", more)

    def used(self, more: str = "") -> str:
        """What each queue's admitted workloads use."""
        return self.quota("kueue_cluster_queue_resource_usage", more)

    def most(self, more: str = "") -> str:
        """What each queue may reach: +Inf without a limit."""
        return f"{self.nominal(more)} + {self.quota('kueue_cluster_queue_borrowing_limit', more)}"

    @staticmethod
    def pending(more: str = "") -> str:
        """Workloads that wait, by queue."""
        return f"sum by (cluster_queue) (max by (cluster_queue, status) (kueue_pending_workloads{{{more}}}))"

    def wanted(self, more: str = "") -> str:
        """What the waiting workloads of each queue ask for together: which flavor they want, Kueue does not say."""
        return f"max by (cluster_queue, resource) (kueue_cluster_queue_resource_pending{{{self.raw}{more}}})"

    @property
    def broken_promise(self) -> str:
        """Queues where GPUs are waited for, with less reserved than guaranteed of every flavor that has such GPUs."""
        return f"{self._short} unless on (cluster_queue, resource) {self._full}"

    @property
    def doubted_promise(self) -> str:
        """The same where another flavor of the queue's is used up: what waits may want that one."""
        return f"{self._short} and on (cluster_queue, resource) {self._full}"

    @property
    def _short(self) -> str:
        waits = f"{self.wanted()} > 0"
        return f"({self._reserved} < {self.nominal()}) and on (cluster_queue, resource) ({waits})"

    @property
    def _full(self) -> str:
        return f"({self._reserved} >= {self.nominal()})"

    @property
    def _reserved(self) -> str:
        return self.quota("kueue_cluster_queue_resource_reservation")

    @property
    def stuck(self) -> str:
        """Queues with something waiting, nothing running, and nothing admitted for an hour."""
        admitted = "sum by (cluster_queue) (increase(kueue_admitted_workloads_total[1h])) > 0"
        active = "max by (cluster_queue) (kueue_admitted_active_workloads) > 0"
        return f"{self.pending()} > 0 unless on (cluster_queue) {admitted} unless on (cluster_queue) {active}"

    @property
    def at_limit(self) -> str:
        """Queues that use all that they may, where that is something."""
        return f"{self.used()} >= ({self.most()}) > 0"

    @property
    def scaled_out(self) -> str:
        """Autoscalers of teams with as many replicas as they may have."""
        current = f"kube_horizontalpodautoscaler_status_current_replicas{{{self.in_teams}}}"
        most = f"kube_horizontalpodautoscaler_spec_max_replicas{{{self.in_teams}}}"
        by = "max by (namespace, horizontalpodautoscaler)"
        return f"{by} ({current}) >= {by} ({most})"

    @property
    def broken_gpus(self) -> str:
        """The last XID of each GPU where it speaks of the GPU."""
        others = "".join(f" != {xid}" for xid in _APPLICATION_XIDS)
        return f"max by (node, gpu, UUID) ({self.with_node('DCGM_FI_DEV_XID_ERRORS')}) > 0{others}"
