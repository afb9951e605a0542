"""Cases for machines that launch templates set, by type or by attributes, and for AWS Cloud Control's provider."""

from dataclasses import replace
from typing import Any, Final

from policy_builders import GONE, UNKNOWN, Break, Case, Sample

from cases.clouds import CPU_GROUP, GROUP, NATIVE, SELF_MANAGED, SELF_TEMPLATE
from cloud_rules import access, buying, gpu_pools, keeping, sizes

_CPU_IMAGE: Final = replace(
    GROUP,
    props={
        "amiType": "AL2023_x86_64_STANDARD",
        "launchTemplate": {"name": "self", "version": "1"},
        "scalingConfig": GROUP.props["scalingConfig"],
    },
)
_CPU_TEMPLATE: Final = replace(SELF_TEMPLATE, props={"name": "self", "instanceType": "m7i.large"})
_BY_DEPENDENCY: Final = replace(
    _CPU_IMAGE,
    props={**_CPU_IMAGE.props, "launchTemplate": {"id": UNKNOWN, "version": UNKNOWN}},
    needs={**dict.fromkeys(_CPU_IMAGE.props, ()), "launchTemplate": (SELF_TEMPLATE.urn,)},
)
_TAINT: Final = (
    "its GPU nodes have no taint that keeps other pods off; set taints: [{key: nvidia.com/gpu, value: present,"
    " effect: NO_SCHEDULE}]"
)
_GROUP_TAINT: Final = (
    "its GPU nodes have no taint that keeps other pods off; set"
    " --register-with-taints=nvidia.com/gpu=present:NoSchedule for the kubelet in the template's user data, and the tag"
    " k8s.io/cluster-autoscaler/node-template/taint/nvidia.com/gpu: present:NoSchedule"
)
_GPUS: Final = "maximum of {} GPUs exceeds the limit of {} GPUs for a pool in this environment; lower {}"
_NODES: Final = "maximum of {} nodes exceeds the limit of {} nodes for a pool in this environment; lower {}"
_SELF_UNTAINTED: Final = replace(SELF_MANAGED, props={**SELF_MANAGED.props, "tags": SELF_MANAGED.props["tags"][:1]})
_ATTRIBUTES: Final[dict[str, Any]] = {"vCpuCount": {"min": 4}, "memoryMib": {"min": 8192}}
_BY_ATTRIBUTES: Final = replace(SELF_TEMPLATE, props={"name": "self", "instanceRequirements": _ATTRIBUTES})
_AT: Final = "template: instanceRequirements"
_OVERRIDE: Final = "self: mixedInstancesPolicy"


def _policy(override: dict[str, Any]) -> dict[str, Any]:
    """A policy of several machines, of which one has a template of its own, or attributes."""
    base = {"launchTemplateName": "self"}
    return {"launchTemplate": {"launchTemplateSpecification": base, "overrides": [override]}}


def _attributes(**attributes: Any) -> dict[str, Any]:
    return {**_ATTRIBUTES, **attributes}


CASES: Final = (
    Case(
        name="a launch template under a CPU image",
        rule=gpu_pools.gpu_pool_tainted,
        given={"eks": _CPU_IMAGE, "template": _CPU_TEMPLATE},
        also=[
            ("template: instanceType", GONE),
            ("eks", _BY_DEPENDENCY),
            ("eks: amiType", GONE),
            ("template: userData", UNKNOWN),
        ],
        breaks=[
            Break("template", SELF_TEMPLATE, f"NodeGroup group: {_TAINT}"),
            Break("template: instanceType", "p5.48xlarge", f"NodeGroup group: {_TAINT}"),
        ],
        unknown={"template: instanceType": "NodeGroup group", "eks: launchTemplate.name": "NodeGroup group"},
    ),
    Case(
        name="a launch template under a CPU image, found by the dependency",
        rule=gpu_pools.gpu_pool_tainted,
        given={"eks": _BY_DEPENDENCY, "template": _CPU_TEMPLATE},
        breaks=[Break("template: instanceType", "p5.48xlarge", f"NodeGroup group: {_TAINT}")],
    ),
    Case(
        name="GPUs of launch templates under CPU images",
        rule=sizes.pool_maximum,
        given={"eks": _CPU_IMAGE, "template": SELF_TEMPLATE, "cpu": CPU_GROUP},
        settings={"gpus": 8},
        also=[("template: instanceType", "m7i.large")],
        breaks=[
            Break(
                "template: instanceType",
                "p5.48xlarge",
                f"NodeGroup group: {_GPUS.format(16, 8, 'scalingConfig.maxSize')}",
            )
        ],
    ),
    Case(
        name="machines by attributes",
        rule=gpu_pools.gpu_pool_tainted,
        given={"self": _SELF_UNTAINTED, "template": _BY_ATTRIBUTES},
        also=[
            (_AT, _attributes(acceleratorCount={"max": 0})),
            (_AT, _attributes(acceleratorCount={"min": 1}, acceleratorTypes=["inference"])),
            (_AT, _attributes(acceleratorManufacturers=["amazon-web-services"])),
            (_AT, _attributes(acceleratorNames=["inferentia", "vu9p"])),
            (_AT, _attributes(allowedInstanceTypes=["m7i.*", "c*"])),
            (_AT, _attributes(onDemandMaxPricePercentageOverLowestPrice=999999, excludedInstanceTypes=["p*", "g*"])),
            (_OVERRIDE, _policy({"instanceRequirements": _ATTRIBUTES})),
            # A template elsewhere matters only where the override sets no machine.
            (_OVERRIDE, _policy({"instanceType": "m7i.large"})),
        ],
        breaks=[
            Break(_AT, _attributes(**change), f"Group self: {_GROUP_TAINT}")
            for change in (
                {"acceleratorCount": {"min": 1}},
                {"acceleratorTypes": ["gpu"]},
                {"acceleratorManufacturers": ["nvidia"]},
                {"acceleratorNames": ["inferentia", "h100"]},
                {"acceleratorTotalMemoryMib": {"min": 24576}},
                {"allowedInstanceTypes": ["m7i.*", "p5*"]},
                {"allowedInstanceTypes": ["g6.xlarge"]},
                {"onDemandMaxPricePercentageOverLowestPrice": 999999},
            )
        ]
        + [
            Break(
                _OVERRIDE,
                _policy({"instanceRequirements": _attributes(acceleratorCount={"min": 1})}),
                f"Group self: {_GROUP_TAINT}",
            )
        ],
        unknown={_AT: "Group self", f"{_AT}.acceleratorCount": "Group self"},
    ),
    Case(
        name="GPUs of machines by attributes",
        rule=sizes.pool_maximum,
        given={"self": SELF_MANAGED, "template": _BY_ATTRIBUTES},
        settings={"gpus": 8},
        also=[
            (_AT, _attributes(acceleratorCount={"min": 1, "max": 4})),
            (_AT, _attributes(allowedInstanceTypes=["g6.xlarge"])),
        ],
        breaks=[
            Break(
                _AT, _attributes(acceleratorCount={"min": 1, "max": 8}), f"Group self: {_GPUS.format(16, 8, 'maxSize')}"
            ),
            Break(
                _AT, _attributes(allowedInstanceTypes=["p5.48xlarge"]), f"Group self: {_GPUS.format(16, 8, 'maxSize')}"
            ),
        ],
    ),
    Case(
        name="allowed machines, and machines by attributes",
        rule=buying.machine_allowed,
        given={"self": SELF_MANAGED, "template": SELF_TEMPLATE},
        settings={"allowed": ["g6.*"]},
        also=[
            (
                "template",
                replace(SELF_TEMPLATE, props={"instanceRequirements": {"allowedInstanceTypes": ["g6.xlarge"]}}),
            )
        ],
        breaks=[
            Break(
                "template",
                _BY_ATTRIBUTES,
                "LaunchTemplate self-template: a machine by instanceRequirements is not an allowed machine type; use"
                " one of g6.*",
            )
        ],
    ),
    Case(
        name="an override with a template of its own",
        rule=sizes.pool_maximum,
        given={
            "self": replace(
                SELF_MANAGED,
                props={
                    **SELF_MANAGED.props,
                    "mixedInstancesPolicy": _policy({"launchTemplateSpecification": {"launchTemplateName": "other"}}),
                },
            ),
            "template": _CPU_TEMPLATE,
            "other": replace(_CPU_TEMPLATE, props={"name": "other", "instanceType": "g6.xlarge"}, name="other"),
        },
        settings={"gpus": 8},
        breaks=[Break("other: instanceType", "p5.48xlarge", f"Group self: {_GPUS.format(16, 8, 'maxSize')}")],
        unknown={"other: instanceType": "Group self"},
    ),
    Case(
        name="pools of AWS Cloud Control",
        rule=gpu_pools.gpu_pool_tainted,
        given=NATIVE,
        also=[("native-group", replace(NATIVE["native-group"], props={"instanceTypes": ["m7i.large"]}))],
        breaks=[
            Break("native-group: taints", GONE, f"Nodegroup native-group: {_TAINT}"),
            Break("native-self: tags.1", GONE, f"AutoScalingGroup native-self: {_GROUP_TAINT}"),
        ],
        unknown={
            "native-group: taints": "Nodegroup native-group",
            "native-template: launchTemplateData.instanceType": (
                "Nodegroup native-group",
                "AutoScalingGroup native-self",
            ),
        },
    ),
    Case(
        name="bounds of pools of AWS Cloud Control",
        rule=sizes.pool_maximum,
        given=NATIVE,
        settings={"nodes": 2, "gpus": 16},
        breaks=[
            Break(
                "native-self: maxSize",
                "3",
                (
                    f"AutoScalingGroup native-self: {_NODES.format(3, 2, 'maxSize')}",
                    f"AutoScalingGroup native-self: {_GPUS.format(24, 16, 'maxSize')}",
                ),
            )
        ],
        unknown={"native-self: maxSize": "AutoScalingGroup native-self"},
    ),
    Case(
        name="identities of pods with AWS Cloud Control",
        rule=access.pod_identity,
        given={"native": NATIVE["native"], "agent": Sample("aws-native:iam:OidcProvider", {"url": UNKNOWN}, "issuer")},
        also=[("agent", Sample("aws-native:eks:Addon", {"addonName": "eks-pod-identity-agent"}, "agent"))],
        breaks=[
            Break(
                "agent",
                Sample("aws-native:eks:Addon", {"addonName": "coredns"}, "dns"),
                "Cluster native: the stack has neither the add-on eks-pod-identity-agent nor an OpenID Connect provider"
                " for the cluster, so pods use the node's role; add one of them",
            )
        ],
    ),
    Case(
        name="launch templates of AWS Cloud Control",
        rule=access.imds_v2,
        given=NATIVE,
        breaks=[
            Break(
                "native-template: launchTemplateData.metadataOptions.httpTokens",
                "optional",
                "LaunchTemplate native-template: allows IMDSv1 requests without a token; set metadataOptions:"
                " {httpTokens: required, httpPutResponseHopLimit: 1}",
            ),
            Break(
                "native-group: launchTemplate",
                GONE,
                "Nodegroup native-group: has no launch template, so IMDSv2 is not enforced; add one with"
                " metadataOptions: {httpTokens: required, httpPutResponseHopLimit: 1}",
            ),
        ],
        unknown={"native-template: launchTemplateData": "LaunchTemplate native-template"},
    ),
    Case(
        name="spot machines of AWS Cloud Control",
        rule=buying.spot_outside_production,
        given=NATIVE,
        settings={"spot": "forbidden"},
        breaks=[
            Break(
                "native-template: launchTemplateData.instanceMarketOptions",
                {"marketType": "spot"},
                "LaunchTemplate native-template: can use spot machines, which are not allowed in this environment; set"
                " no launchTemplateData.instanceMarketOptions.marketType: spot",
            )
        ],
    ),
    Case(
        name="protection with AWS Cloud Control",
        rule=keeping.deletion_protected,
        given=NATIVE,
        settings={"required": True},
        breaks=[
            Break(
                f"{name}! protect",
                to=False,
                says=(
                    f"{place} is not protected: Pulumi can delete or replace it; set the resource option protect: true"
                ),
            )
            for name, place in (
                ("native", "Cluster native:"),
                ("native-group", "Nodegroup native-group:"),
                ("native-self", "AutoScalingGroup native-self:"),
            )
        ],
    ),
    Case(
        name="tags with AWS Cloud Control",
        rule=keeping.owner_tags,
        given=NATIVE,
        also=[("native-group: tags.Name", UNKNOWN)],
        breaks=[
            Break("native: tags.0", GONE, "Cluster native: missing tags or labels: owner; add them under tags"),
            Break(
                "native-group: tags.owner",
                GONE,
                "Nodegroup native-group: missing tags or labels: owner; add them under tags",
            ),
        ],
        unknown={"native: tags.0.value": "Cluster native"},
    ),
)
