"""ComputeDomains of NVIDIA's DRA driver, whose pods share memory over NVLink between machines."""

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource

from gpu_tenancy.model.plan.compute_domains import COMPUTE_DOMAIN
from gpu_tenancy.model.plan.workloads import JobPlan

from .conventions import NAME


def compute_domain(name: str, job: JobPlan, channels: str, opts: pulumi.ResourceOptions) -> CustomResource:
    """The ComputeDomain of a job. The driver's controller makes the ResourceClaimTemplate `channels` for its pods.

    `numNodes` is deprecated, and 0 is right for any number of pods:
    https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/blob/v0.4.1/api/nvidia.com/resource/v1beta1/computedomain.go
    """
    return CustomResource(
        name,
        *COMPUTE_DOMAIN,
        metadata={"name": job.name, "namespace": job.team, "labels": {NAME: job.name}},
        spec={"numNodes": 0, "channel": {"resourceClaimTemplate": {"name": channels}, "allocationMode": "Single"}},
        opts=opts,
    )
