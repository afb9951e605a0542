"""Rules for claims of devices, where Kueue admits pods with claims of channels."""

from typing import Final

from gpu_tenancy.model.plan.compute_domains import CHANNEL_CLASS
from gpu_tenancy.model.plan.guards import GuardsPlan

from .policies import EVERYWHERE, Resources, Rule, exempt

_EXACT: Final = "e.?allocationMode.orValue('ExactCount') == 'ExactCount'"
_IS_ONE: Final = f"!e.?adminAccess.orValue(false) && {_EXACT} && e.?count.orValue(1) == 1"
"""Whether the request `e` is for one device, which others do not use."""


def device_claims(guards: GuardsPlan) -> Rule:
    """Tenants may claim one channel of a ComputeDomain, and no other device.

    No quota counts other devices, and the driver's daemon reaches the memory of any ComputeDomain: the driver compares
    the namespace of a claim with that of the ComputeDomain for channels only (`applyComputeDomainDaemonConfig` in
    https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/blob/v0.4.1/cmd/compute-domain-kubelet-plugin/device_state.go).

    Kueue reads a ResourceClaimTemplate when it admits a workload, and does not admit classes that it does not count.
    But the claim of a pod is made from the template as it is when the pod is created, and a tenant could have replaced
    it meanwhile. So this rule always denies. Whoever may make claims in all namespaces is not bound: the driver, the
    scheduler and the controller of claims.
    """
    return Rule(
        name="device-claims",
        resources=(Resources("resource.k8s.io", ("resourceclaims", "resourceclaimtemplates")),),
        conditions={"not-exempt": exempt(guards, ())["not-exempt"], "not-everywhere": f"!{EVERYWHERE}"},
        variables={
            "claim": "object.kind == 'ResourceClaimTemplate' ? object.spec.spec : object.spec",
            "requests": "variables.claim.?devices.?requests.orValue([])",
            # Until v1beta1, the fields of `exactly` are those of the request.
            "exact": "variables.requests.filter(r, !has(r.firstAvailable)).map(r, r.?exactly.orValue(r))",
            "either": (
                "variables.requests.filter(r, has(r.firstAvailable)).map(r, 'claims one of several devices by"
                " firstAvailable, which no queue counts; request GPUs under resources of the containers')"
            ),
            "uncounted": (
                f"variables.exact.filter(e, e.?deviceClassName.orValue('') != '{CHANNEL_CLASS}').map(e, 'claims devices"
                " of DeviceClass ' + e.?deviceClassName.orValue('') + ', which no queue counts; request GPUs under"
                " resources of the containers')"
            ),
            "several": (
                f"variables.exact.filter(e, !({_IS_ONE})).map(e, 'claims more than its channel; remove adminAccess,"
                " allocationMode and count')"
            ),
        },
        faults=("either", "uncounted", "several"),
        always_denies=True,
    )
