"""Namespaced and cluster-scoped kinds."""

from collections.abc import Iterable, Mapping

from gpu_tenancy.console.offline.manifests import KubernetesObject
from gpu_tenancy.console.offline.wire import text_at

CLUSTER_SCOPED: frozenset[tuple[str, str]] = frozenset(
    (group, kind)
    for group, kinds in {
        "": ("Namespace", "Node", "PersistentVolume"),
        "admissionregistration.k8s.io": (
            "MutatingAdmissionPolicy",
            "MutatingAdmissionPolicyBinding",
            "MutatingWebhookConfiguration",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
            "ValidatingWebhookConfiguration",
        ),
        "apiextensions.k8s.io": ("CustomResourceDefinition",),
        "apiregistration.k8s.io": ("APIService",),
        "certificates.k8s.io": ("CertificateSigningRequest", "ClusterTrustBundle"),
        "flowcontrol.apiserver.k8s.io": ("FlowSchema", "PriorityLevelConfiguration"),
        "networking.k8s.io": ("IngressClass", "IPAddress", "ServiceCIDR"),
        "node.k8s.io": ("RuntimeClass",),
        "rbac.authorization.k8s.io": ("ClusterRole", "ClusterRoleBinding"),
        "resource.k8s.io": ("DeviceClass", "DeviceTaintRule", "ResourceSlice"),
        "scheduling.k8s.io": ("PriorityClass",),
        "storage.k8s.io": (
            "CSIDriver",
            "CSINode",
            "StorageClass",
            "VolumeAttachment",
            "VolumeAttributesClass",
        ),
        "cert-manager.io": ("ClusterIssuer",),
        "kueue.x-k8s.io": (
            "AdmissionCheck",
            "ClusterQueue",
            "Cohort",
            "MultiKueueCluster",
            "MultiKueueConfig",
            "ProvisioningRequestConfig",
            "ResourceFlavor",
            "Topology",
            "WorkloadPriorityClass",
        ),
        "nvidia.com": ("ClusterPolicy", "NVIDIADriver"),
        "scheduling.volcano.sh": ("Queue",),
        "topology.volcano.sh": ("HyperNode",),
        "trainer.kubeflow.org": ("ClusterTrainingRuntime",),
        "karpenter.k8s.aws": ("EC2NodeClass",),
        "karpenter.sh": ("NodeClaim", "NodePool"),
        "keda.sh": ("ClusterTriggerAuthentication",),
        "nfd.k8s-sigs.io": ("NodeFeatureRule",),
    }.items()
    for kind in kinds
)
"""Group and kind of the cluster-scoped objects that a GPU platform can have."""


def declared_scopes(objects: Iterable[KubernetesObject]) -> Mapping[tuple[str, str], bool]:
    """Returns the kinds that the given objects define, and whether each is cluster-scoped."""
    return {
        (text_at(item.manifest, "spec", "group"), text_at(item.manifest, "spec", "names", "kind")): text_at(
            item.manifest, "spec", "scope"
        )
        == "Cluster"
        for item in objects
        if (item.group, item.kind) == ("apiextensions.k8s.io", "CustomResourceDefinition")
    }
