"""Batch work: a Job, JobSet, TrainJob, RayJob or LeaderWorkerSet through a queue, a gang through Volcano."""

import re
from typing import Final

import pulumi
from pulumi import ResourceOptions
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.batch.v1 import Job

from gpu_tenancy.model.manifests.job_sets import training_runtime
from gpu_tenancy.model.manifests.jobs import gang_manifest, job_manifest
from gpu_tenancy.model.manifests.pods import NAME
from gpu_tenancy.model.names import COMPUTE_DOMAIN
from gpu_tenancy.model.plan.workloads import JobPlan, RuntimePlan

from .objects import DO_NOT_AWAIT, Component, Options, custom_resource

_REPLACED: Final = {"LeaderWorkerSet": "spec.leaderWorkerTemplate"}
"""By kind, the field whose change replaces the object, if it is not the whole spec: the number of groups can change."""
_WORDS: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


class TrainingJob(Component):
    """A Job in a team's queue, or another kind of job, with its ComputeDomain if it has one.

    A TrainJob has a `TrainingRuntime` beside it. Kueue admits all pods together, or those of one group of a
    LeaderWorkerSet. It can be pending for a long time, so a deployment does not wait for it. The operators of the kinds
    are not installed here.
    """

    def __init__(self, name: str, job: JobPlan, opts: Options = None) -> None:
        super().__init__("gpu-tenancy:tenancy:TrainingJob", name, opts)
        replaced = _replaced_on_change(self)
        domain = [_compute_domain(f"{name}-compute-domain", job, job.channels, replaced)] if job.channels else []
        after, manifest = ResourceOptions(depends_on=domain), job_manifest(job)
        if job.framework == "job":
            metadata = manifest["metadata"]
            metadata["annotations"] = DO_NOT_AWAIT | metadata.get("annotations", {})
            opts = ResourceOptions.merge(self.own, after)
            self.job: pulumi.Resource = Job(f"{name}-job", metadata=metadata, spec=manifest["spec"], opts=opts)
        else:
            kind = manifest["kind"]
            opts = ResourceOptions.merge(_replaced_on_change(self, _REPLACED.get(kind, "spec")), after)
            self.job = custom_resource(f"{name}-{_WORDS.sub('-', kind).lower()}", manifest, opts)


class GangJob(Component):
    """A Volcano Job: all of its pods start together, or none. Volcano is not installed here.

    It uses quota of the team's Volcano queue, not of Kueue's, so that only one scheduler allocates each GPU.
    """

    def __init__(self, name: str, gang: JobPlan, opts: Options = None) -> None:
        super().__init__("gpu-tenancy:tenancy:GangJob", name, opts)
        self.job = custom_resource(f"{name}-job", gang_manifest(gang), _replaced_on_change(self))


class TrainingRuntime(Component):
    """A namespaced runtime of Kubeflow Trainer, for one TrainJob, or for TrainJobs of users with one priority class.

    A TrainJob cannot set a priority class, a failure policy, further containers or a second role, only `PodSpecPatch`
    in https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/apis/trainer/v1alpha1/trainjob_types.go. If the namespace's
    quota admits only some classes, it rejects pods of Trainer's own runtimes for ever. Pods have the team's service
    account, no API token and no capabilities, like other workloads.
    """

    def __init__(self, name: str, runtime: RuntimePlan, opts: Options = None) -> None:
        super().__init__("gpu-tenancy:tenancy:TrainingRuntime", name, opts)
        self.runtime = custom_resource(f"{name}-runtime", training_runtime(runtime), self.own)


def _replaced_on_change(component: pulumi.ComponentResource, field: str = "spec") -> ResourceOptions:
    """Options for kinds whose webhooks reject changes of a field; Pulumi knows this for Jobs only."""
    return ResourceOptions(
        parent=component,
        replace_on_changes=[field],
        delete_before_replace=True,
        ignore_changes=["spec.ttlSecondsAfterFinished"],  # Jobs deployed by 0.3 have it, and would start again.
    )


def _compute_domain(name: str, job: JobPlan, channels: str, opts: ResourceOptions) -> CustomResource:
    """The ComputeDomain of a job. The driver's controller makes the ResourceClaimTemplate `channels` for its pods."""
    # `numNodes` is deprecated, and 0 is right for any number of pods:
    # https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/blob/v0.4.1/api/nvidia.com/resource/v1beta1/computedomain.go
    return CustomResource(
        name,
        *COMPUTE_DOMAIN,
        metadata={"name": job.name, "namespace": job.team, "labels": {NAME: job.name}},
        spec={"numNodes": 0, "channel": {"resourceClaimTemplate": {"name": channels}, "allocationMode": "Single"}},
        opts=opts,
    )
