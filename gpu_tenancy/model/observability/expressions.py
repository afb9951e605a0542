"""PromQL expressions on the GPU resources of a stack, shared by dashboards and alerts."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from gpu_tenancy.base.guarantee import BESIDE
from gpu_tenancy.base.quantity import CPU

_APPLICATION_XIDS: Final = (13, 31, 43, 45, 68, 109)
"""XIDs that a program causes, not the GPU; NVIDIA's health check ignores them too.
https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/blob/main/cmd/gpu-kubelet-plugin/device_health.go (2026-08)."""


def _one_of(names: Sequence[str]) -> str:
    """A PromQL regular expression for exactly these names; dots are in brackets, which need no double backslash."""
    return "|".join(name.replace(".", "[.]") for name in names)


RECORDED_EVERY: Final = 300
"""Seconds between two samples of a recording rule. In a month, a series has 8,928 of them, and a query of a thousand
series is below Prometheus' limit of 50 million samples."""


@dataclass(frozen=True, slots=True)
class Expressions:
    """PromQL for one stack. A parameter `more` adds label matchers, such as `, node=~"$node"`."""

    resources: tuple[str, ...]  # extended resources of the GPUs, such as `nvidia.com/gpu`; `cpu` without GPUs
    teams: tuple[str, ...]
    seconds: int = RECORDED_EVERY

    @property
    def every(self) -> str:
        """Interval of the recording rules."""
        return f"{self.seconds // 60}m"

    @property
    def noun(self) -> str:
        """Noun of the counted resource: `GPUs`, or `CPUs` for a stack without GPUs."""
        return "CPUs" if self.resources == (CPU,) else "GPUs"

    @property
    def raw(self) -> str:
        """Matcher for the label `resource` of Kueue's metrics, which has the original name."""
        return f'resource=~"{_one_of(self.resources)}"'

    @property
    def written(self) -> str:
        """Matcher for the label `resource` of kube-state-metrics' metrics of nodes and pods: `nvidia_com_gpu`."""
        return f'resource=~"{_one_of([re.sub(r"[^a-zA-Z0-9_]", "_", name) for name in self.resources])}"'

    @property
    def budgets(self) -> str:
        """Matcher for the label `resource` of kube-state-metrics' metrics of ResourceQuotas: the original names."""
        return f'resource=~"{_one_of([f"requests.{name}" for name in self.resources])}"'

    @property
    def in_teams(self) -> str:
        """Matcher for the label `namespace`: the teams' namespaces."""
        return f'namespace=~"{_one_of(self.teams)}"'

    @staticmethod
    def policy_changes(modifier: str = "") -> str:
        """Changes of admission policies and bindings by verb and resource, without creation (201), dry runs, status."""
        resources = "(validating|mutating)admissionpolic(ies|ybindings)"
        matchers = (
            f'group="admissionregistration.k8s.io", resource=~"{resources}", subresource="", dry_run="", code="200",'
            ' verb=~"APPLY|PATCH|PUT|DELETE|DELETECOLLECTION"'
        )
        return f"sum by (verb, resource) (apiserver_request_total{{{matchers}}}{modifier})"

    def capacity(self, more: str = "") -> str:
        """GPUs by node, healthy or not."""
        return f"sum by (node) (kube_node_status_capacity{{{self.written}{more}}})"

    def allocatable(self, more: str = "") -> str:
        """Allocatable GPUs, by node."""
        return f"sum by (node) (kube_node_status_allocatable{{{self.written}{more}}})"

    def unhealthy(self, more: str = "") -> str:
        """GPUs of unhealthy nodes, by node: not ready, or with fewer allocatable GPUs than capacity."""
        unready = f'kube_node_status_condition{{condition="Ready", status="true"{more}}} == 0'
        return f"{self.capacity(more)} > {self.allocatable(more)} or {self.capacity(more)} > 0 and on (node) {unready}"

    def requested(self, more: str = "") -> str:
        """GPUs of each container that was scheduled."""
        return f'kube_pod_container_resource_requests{{{self.written}, node!=""{more}}}'

    def held(self, more: str = "") -> str:
        """GPUs of each container that is scheduled and has not ended."""
        lives = 'max by (namespace, pod) (kube_pod_status_phase{phase=~"Pending|Running"} == 1)'
        return f"{self.requested(more)} * on (namespace, pod) group_left () {lives}"

    @staticmethod
    def of_pods(metric: str, more: str = "") -> str:
        """A metric of dcgm-exporter with namespace and name of the pod in the labels of kube-state-metrics.

        A scrape without `honorLabels`, the default of the GPU Operator's chart, renames them to `exported_…`.
        """
        series = f'{metric}{{exported_pod!=""{more}}}'
        spaces = f'label_replace({series}, "namespace", "$1", "exported_namespace", "(.+)")'
        return f'label_replace({spaces}, "pod", "$1", "exported_pod", "(.+)")'

    @staticmethod
    def with_node(series: str) -> str:
        """A series of dcgm-exporter with the node in the label that kube-state-metrics uses.

        Up to 4.5.3, which GPU Operator 26.3.3 installs, the label is `Hostname`; on the main branch it is `hostname`
        (https://github.com/NVIDIA/dcgm-exporter/pull/655, 2026-05-12). A missing label is empty.
        """
        return f'label_join({series}, "node", "", "Hostname", "hostname")'

    @property
    def in_use(self) -> str:
        """Selects GPUs that a pod holds."""
        return '{exported_pod!=""}'

    @staticmethod
    def memory(selected: str = "") -> str:
        """Memory of all GPUs, or of selected ones, in MiB."""
        return f"(sum(DCGM_FI_DEV_FB_USED{selected}) + sum(DCGM_FI_DEV_FB_FREE{selected}))"

    def each_gpu(self, metric: str) -> str:
        """A metric of dcgm-exporter by GPU or MIG partition, with the model, and the pod that holds it."""
        labels = "node, gpu, UUID, GPU_I_ID, modelName, exported_namespace, exported_pod"
        return f"max by ({labels}) ({self.with_node(metric)})"

    def mode(self, more: str = "") -> str:
        """Use of the GPUs of a node, by node: 0 exclusive, 1 shared (advertised twice or more), 2 MIG."""
        partitions = f"""count by (node) ({self.with_node('DCGM_FI_DEV_FB_USED{GPU_I_ID!=""}')})"""
        gpus = f"count by (node) (count by (node, UUID) ({self.with_node('DCGM_FI_DEV_FB_USED')}))"
        capacity = self.capacity(more)
        return f"2 * clamp_max({partitions}, 1) and on (node) {capacity} or ({capacity} >= bool 2 * {gpus})"

    @staticmethod
    def described(by_node: str) -> str:
        """An expression by node, with the node's internal IP and, if it has one, its role."""
        info = "0 * max by (node, internal_ip) (kube_node_info)"
        role = "0 * topk by (node) (1, max by (node, role) (kube_node_role))"
        known = f"(({by_node}) + on (node) group_left (internal_ip) {info})"
        return f"{known} + on (node) group_left (role) {role} or on (node) {known}"

    @staticmethod
    def with_owner(by_job: str) -> str:
        """An expression by Job, with the kind of the object that owns the Job, if there is one."""
        owner = '0 * max by (namespace, job_name, owner_kind) (kube_job_owner{owner_kind!=""})'
        joined = f"({by_job}) + on (namespace, job_name) group_left (owner_kind) {owner}"
        return f"{joined} or on (namespace, job_name) ({by_job})"

    def by_node(self, metric: str, how: str, more: str = "") -> str:
        """A metric of dcgm-exporter by node, aggregated by `how`, such as `avg`."""
        return f"{how} by (node) ({self.with_node(metric)}) and on (node) {self.capacity(more)}"

    @staticmethod
    def by_job(of_pods: str, how: str) -> str:
        """A metric of pods by the selected Jobs that created them, aggregated by `how`, such as `sum`.

        The Job's name is in the label that kube-state-metrics uses.
        """
        made = 'max by (namespace, pod, created_by_name) (kube_pod_info{created_by_kind="Job"})'
        joined = f"{of_pods} * on (namespace, pod) group_left (created_by_name) {made}"
        by_job = f"{how} by (namespace, created_by_name) ({joined})"
        named = f'label_replace({by_job}, "job_name", "$1", "created_by_name", "($job)")'
        selected = 'kube_job_created{namespace=~"$team", job_name=~"$job"}'
        return f"max by (namespace, job_name) ({named}) and on (namespace, job_name) {selected}"

    @staticmethod
    def by_pod(of_pods: str, how: str) -> str:
        """A metric of pods by pod, with its node and the object that created it."""
        labels = "namespace, pod, created_by_kind, created_by_name, node"
        joined = "on (namespace, pod) group_left (created_by_kind, created_by_name, node)"
        return f"{how} by (namespace, pod) ({of_pods}) * {joined} max by ({labels}) (kube_pod_info)"

    def of_cohort(self, metric: str) -> str:
        """A metric of a cohort with its subtree, by cohort, flavor and resource."""
        return f"max by (cohort, flavor, resource) (kueue_cohort_subtree_{metric}{{{self.raw}}})"

    def quota(self, metric: str, more: str = "") -> str:
        """A metric of Kueue by queue, flavor and resource; the maximum of all replicas of Kueue."""
        return f"max by (cluster_queue, flavor, resource) ({metric}{{{self.raw}{more}}})"

    def nominal(self, more: str = "") -> str:
        """Nominal quota of each queue."""
        return self.quota("kueue_cluster_queue_nominal_quota", more)

    def used(self, more: str = "") -> str:
        """Usage of each queue's admitted workloads."""
        return self.quota("kueue_cluster_queue_resource_usage", more)

    @property
    def beyond_counted(self) -> str:
        """GPUs on nodes of queues that count fewer, without deleted pods; Volcano's queues are named team-flavor."""
        pods = f"{self.held(f', {self.in_teams}')} unless on (namespace, pod) kube_pod_deletion_timestamp"
        bound = f'label_replace({pods}, "cluster_queue", "$1", "namespace", "(.+)")'
        teams = _one_of(sorted(self.teams, key=len, reverse=True))
        gangs = f"max by (queue_name, resource) (volcano_queue_allocated_scalar_resources{{{self.raw}}}) / 1000"
        of_teams = f'label_replace({gangs}, "cluster_queue", "$1", "queue_name", "({teams})-.+")'
        return f"sum by (cluster_queue) ({bound}) > sum by (cluster_queue) ({self.used()} or {of_teams})"

    def limit(self, more: str = "") -> str:
        """Nominal quota plus borrowing limit of each queue; +Inf without a limit."""
        return f"{self.nominal(more)} + {self.quota('kueue_cluster_queue_borrowing_limit', more)}"

    @property
    def quota_of_all(self) -> str:
        """Quota that queues share: the root cohort's, without quota that queues do not lend."""
        return f"max by (flavor, resource) (kueue_cohort_subtree_quota{{{self.raw}}})"

    def lendable(self, amount: str) -> str:
        """An amount of each queue, or its lending limit if that is less; the limit is +Inf if there is none."""
        limit = self.quota("kueue_cluster_queue_lending_limit")
        return f"({amount} <= {limit} or {limit})"

    @staticmethod
    def pending() -> str:
        """Number of pending workloads, by queue."""
        return "sum by (cluster_queue) (max by (cluster_queue, status) (kueue_pending_workloads{}))"

    def wanted(self, more: str = "") -> str:
        """Requests of all pending workloads of each queue; Kueue does not report for which flavor."""
        return f"max by (cluster_queue, resource) (kueue_cluster_queue_resource_pending{{{self.raw}{more}}})"

    @property
    def below_guarantee(self) -> str:
        """Reservations in flavors of queues whose pending workloads fit into the unused guarantee.

        Their mean request fits, so the smallest one does.
        """
        return f"{self._reserved} and {self._left} >= {self._mean_request}"

    @property
    def missed_guarantee(self) -> str:
        """Reservations below the guarantee, if no other flavor can be the one that the pending workloads request."""
        return f"{self.below_guarantee} unless on (cluster_queue, resource) {self.guarantee_reserved}"

    @property
    def not_covered(self) -> str:
        """Unused guarantee of CPU or memory, less than the mean request of workloads that miss their guarantee.

        Kueue does not report requests by workload: the mean of covered workloads fits, so at least one is not covered.
        """
        beside = replace(self, resources=tuple(name for name in BESIDE if name not in self.resources))
        left = f"round(clamp_min({beside._left}, 0), 0.001)"  # fractions of CPUs are not exact
        return f"{left} < {beside._mean_request} and on (cluster_queue, flavor) ({self.missed_guarantee})"

    @property
    def demand_within_guarantee(self) -> str:
        """1 for each queue with a guarantee whose pending workloads fit into its unused part, in any flavor.

        Not if pending workloads request none of the resources, because they wait for something else.
        """
        usable = f"{self.limit()} > 0"
        left = f"min by (cluster_queue, resource) ({self._left} and ({usable}))"
        short = f"{left} - ({self.wanted()} or 0 * {left}) < 0"
        asked = f"sum by (cluster_queue) ({self.wanted()}) > 0"
        others = f"({self.pending()} > 0 unless {asked})"
        promised = f"sum by (cluster_queue) ({self.nominal()}) > 0"
        return f"({promised}) ^ 0 unless on (cluster_queue) ({short}) unless {others}"

    def grown(self, metric: str, by: str, more: str = "") -> str:
        """Growth of Kueue's counters since the last evaluation, also from 0 after a restart.

        Nothing while Prometheus has not read Kueue for as long.
        """
        series = f"{metric}{{{more}}}" if more else metric
        offset = f"offset {self.every}"
        since = f"sum by ({by}) ({series} - {series} {offset} >= 0 or {series})"
        return f"{since} and on () group(kueue_cluster_queue_nominal_quota {offset})"

    @staticmethod
    def waited(quantile: float, buckets: str, by: str = "cluster_queue") -> str:
        """Quantile of recorded buckets in 7 days; 1 gives the bound of the longest."""
        recorded = f'sum_over_time(gpu_tenancy:{buckets}{{cluster_queue=~"$team"}}[7d])'
        return f"histogram_quantile({quantile}, sum by ({by}, le) ({recorded})) > 0"

    @property
    def guarantee_reserved(self) -> str:
        """Flavors that a queue may use, with less unused guarantee than the mean request of pending workloads."""
        return f"({self._left} < {self._mean_request} and ({self.limit()} > 0))"

    @property
    def _left(self) -> str:
        return f"({self.nominal()} - {self._reserved})"

    @property
    def _mean_request(self) -> str:
        """Of the pending workloads that request the resource; to compare with amounts by flavor."""
        mean = f"{self.wanted()} / on (cluster_queue) group_left () {self.pending()} > 0"
        return f"on (cluster_queue, resource) group_left () ({mean})"

    @property
    def _reserved(self) -> str:
        return self.quota("kueue_cluster_queue_resource_reservation")

    @staticmethod
    def autoscalers(amount: str, picked: str) -> str:
        """A number of replicas of HorizontalPodAutoscalers, such as `spec_max`."""
        series = f"kube_horizontalpodautoscaler_{amount}_replicas{{{picked}}}"
        return f"max by (namespace, horizontalpodautoscaler) ({series})"

    @property
    def broken_gpus(self) -> str:
        """The last XID of each GPU, without XIDs that a program causes."""
        others = "".join(f" != {xid}" for xid in _APPLICATION_XIDS)
        return f"max by (node, gpu, UUID) ({self.with_node('DCGM_FI_DEV_XID_ERRORS')}) > 0{others}"
