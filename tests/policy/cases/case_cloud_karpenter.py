"""Cases for machines that Karpenter selects, by inclusion and by exclusion."""

from typing import Any, Final

from policy_builders import Break, Case, manifest

from cases.clouds import EKS, GROUP, KARPENTER
from cloud_rules import buying, gpu_pools, sizes

_AWS: Final = "karpenter.k8s.aws"
_AUTO_MODE: Final = "eks.amazonaws.com"
_AZURE: Final = "karpenter.azure.com"
_TYPE: Final = "node.kubernetes.io/instance-type"
_TAINT: Final = (
    "NodePool any: its GPU nodes have no taint that keeps other pods off; set spec.template.spec.taints:"
    " [{key: nvidia.com/gpu, value: present, effect: NoSchedule}]"
)
_EXCLUDE: Final = "; or exclude GPU machines with the requirement {{key: {}, operator: DoesNotExist}}"
_AWS_TAINT: Final = f"{_TAINT}{_EXCLUDE.format(f'{_AWS}/instance-gpu-count')}"
_AZURE_TAINT: Final = f"{_TAINT}{_EXCLUDE.format(f'{_AZURE}/sku-gpu-count')}"
_AT: Final = "karpenter: spec.template.spec.requirements"
_ANY: Final = manifest("""
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: any}
spec: {template: {spec: {requirements: [{key: karpenter.k8s.aws/instance-category, operator: In, values: [m]}]}}}
""")
_ARCHITECTURE: Final = {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}


def _require(key: str, operator: str, *values: str, **more: Any) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values), **more}


_BOUNDS: Final = (("Lt", "9"), ("Lte", "4"), ("Exists",))

CASES: Final = (
    Case(
        name="machines that Karpenter can select",
        rule=gpu_pools.gpu_pool_tainted,
        given={"karpenter": _ANY},
        also=[
            (f"{_AT}.0.values", ["c", "m", "r"]),
            (_AT, [_require(f"{_AWS}/instance-gpu-count", "DoesNotExist"), _ARCHITECTURE]),
            (_AT, [_require(f"{_AWS}/instance-gpu-count", "Lt", "1")]),
            (_AT, [_require(f"{_AWS}/instance-gpu-count", "Lte", "0")]),
            (_AT, [_require(f"{_AWS}/instance-gpu-name", "DoesNotExist")]),
            (_AT, [_require(f"{_AWS}/instance-generation", "Gt", "100")]),
            (_AT, [_require(f"{_AWS}/instance-category", "NotIn", "g", "gr", "p", "t")]),
            (_AT, [_require(f"{_AWS}/instance-family", "In", "m7i", "c7i"), _ARCHITECTURE]),
            # No machine with GPUs has these sizes, or accelerators of AWS.
            (_AT, [_require(f"{_AWS}/instance-size", "In", "nano", "micro", "small")]),
            (_AT, [_require(f"{_AWS}/instance-accelerator-count", "Gt", "0")]),
            (
                _AT,
                [
                    _require(f"{_AWS}/instance-family", "In", "g6", "m7i"),
                    _require(f"{_AWS}/instance-gpu-count", "DoesNotExist"),
                ],
            ),
            (_AT, [_require(_TYPE, "In", "m7i.large", "c7i.large")]),
            (_AT, [_require(_TYPE, "In", "m7i.large", "g6.xlarge"), _require(_TYPE, "NotIn", "g6.xlarge")]),
            (_AT, [_require(f"{_AUTO_MODE}/instance-category", "In", "c", "m")]),
            (_AT, [_require(f"{_AUTO_MODE}/instance-gpu-count", "DoesNotExist")]),
            (_AT, [_require(f"{_AZURE}/sku-family", "In", "D", "E")]),
            (_AT, [_require(f"{_AZURE}/sku-family", "NotIn", "N")]),
            (_AT, [_require(f"{_AZURE}/sku-gpu-count", "DoesNotExist")]),
        ],
        breaks=[
            Break(_AT, requirements, message)
            for message, *requirements_of_pools in (
                (
                    _AWS_TAINT,
                    [],
                    [_ARCHITECTURE],
                    [_require(f"{_AWS}/instance-category", "NotIn", "t")],
                    [_require(f"{_AWS}/instance-category", "NotIn", "p")],
                    [_require(f"{_AWS}/instance-category", "In", "m", "g")],
                    [_require(f"{_AWS}/instance-category", "Exists")],
                    [_require(f"{_AWS}/instance-size", "In", "xlarge", "48xlarge")],
                    [_require(f"{_AWS}/instance-size", "NotIn", "nano")],
                    [_require(f"{_AWS}/instance-generation", "Gt", "4")],
                    [_require(f"{_AWS}/instance-family", "In", "m7i", "g6", minValues=2)],
                    [_require(f"{_AWS}/instance-cpu", "Gt", "7")],
                    [_require(_TYPE, "NotIn", "t3.micro")],
                    [_require(_TYPE, "In", "m7i.large", "p5.48xlarge")],
                ),
                (
                    f"{_TAINT}{_EXCLUDE.format(f'{_AUTO_MODE}/instance-gpu-count')}",
                    [_require(f"{_AUTO_MODE}/instance-category", "NotIn", "t")],
                    [_require(f"{_AUTO_MODE}/instance-cpu", "In", "4", "8")],
                ),
                (
                    _TAINT,
                    [_require(f"{_AWS}/instance-gpu-count", "In", "8")],
                    [_require(f"{_AWS}/instance-gpu-count", "Gt", "0")],
                    [_require(f"{_AWS}/instance-gpu-count", "Lt", "2")],
                    [_require(f"{_AWS}/instance-gpu-count", "Gte", "1")],
                    [_require(f"{_AWS}/instance-gpu-name", "Exists")],
                    [_require(f"{_AWS}/instance-gpu-manufacturer", "In", "nvidia")],
                    [_require(f"{_AWS}/instance-family", "In", "p5")],
                    [_require(f"{_AWS}/instance-family", "In", "p9")],
                    [
                        _require(f"{_AWS}/instance-category", "In", "p"),
                        _require(f"{_AWS}/instance-generation", "Gt", "8"),
                    ],
                    [_require(f"{_AUTO_MODE}/instance-gpu-name", "In", "h100")],
                    [_require(f"{_AZURE}/sku-family", "In", "N")],
                    [_require(f"{_AZURE}/sku-gpu-count", "Gt", "0")],
                    [_require(_TYPE, "In", "standard_nc24ads_a100_v4")],
                ),
                (
                    _AZURE_TAINT,
                    [_require(f"{_AZURE}/sku-family", "NotIn", "B")],
                    [_require(f"{_AZURE}/sku-cpu", "Lt", "33")],
                    [_require(f"{_AZURE}/sku-name", "In", "Standard_D8s_v5", "Standard_NC4as_T4_v3")],
                ),
            )
            for requirements in requirements_of_pools
        ],
        unknown={_AT: "NodePool any", f"{_AT}.0.values": "NodePool any", f"{_AT}.0.operator": "NodePool any"},
    ),
    Case(
        name="GPUs of a machine that Karpenter can select",
        rule=sizes.pool_maximum,
        given={
            "karpenter": manifest("""
            apiVersion: karpenter.sh/v1
            kind: NodePool
            metadata: {name: any}
            spec:
              limits: {nodes: 8}
              template:
                spec:
                  requirements: [{key: karpenter.k8s.aws/instance-gpu-count, operator: In, values: ["4"]}]
            """)
        },
        settings={"gpus": 32},
        also=[
            (_AT, [_require(f"{_AWS}/instance-gpu-count", "Lt", "5")]),
            (_AT, [_require(f"{_AWS}/instance-gpu-count", "Lte", "4"), _ARCHITECTURE]),
            (_AT, [_require(f"{_AWS}/instance-category", "NotIn", "g", "gr", "p")]),
            # The lowest of all bounds, and other numbers are none.
            (_AT, [_require(f"{_AWS}/instance-gpu-count", operator, *values) for operator, *values in _BOUNDS]),
            (_AT, [_require(f"{_AWS}/instance-gpu-count", "Lt", "5"), _require(f"{_AWS}/instance-cpu", "Lt", "500")]),
        ],
        breaks=[
            Break(
                _AT,
                [
                    _require(f"{_AWS}/instance-gpu-count", operator, *values),
                    _require(f"{_AWS}/instance-cpu", "Lt", "5"),
                ],
                "NodePool any: maximum of 64 GPUs exceeds the limit of 32 GPUs for a pool in this environment; lower"
                " spec.limits.nodes (or a limit of nvidia.com/gpu)",
            )
            for operator, *values in (("In", "1", "8"), ("Lt", "9"), ("Lte", "8"))
        ],
    ),
    Case(
        name="allowed machines, and Karpenter by requirements",
        rule=buying.machine_allowed,
        given={"karpenter": KARPENTER},
        settings={"allowed": ["g6.*", "m7i.*"]},
        also=[(_AT, [_require(f"{_AWS}/instance-family", "In", "g6", "m7i"), _ARCHITECTURE])],
        breaks=[
            Break(
                _AT,
                requirements,
                "NodePool l4: a machine by requirements is not an allowed machine type; use one of g6.*, m7i.*",
            )
            for requirements in (
                [],
                [_ARCHITECTURE],
                [_require(f"{_AWS}/instance-category", "In", "m")],
                [_require(_TYPE, "NotIn", "g6.xlarge")],
            )
        ],
        unknown={_AT: "NodePool l4"},
    ),
    Case(
        name="several requirements of the capacity type",
        rule=buying.spot_outside_production,
        given={"karpenter": KARPENTER},
        settings={"spot": "forbidden"},
        also=[
            (
                _AT,
                [
                    _require("karpenter.sh/capacity-type", "In", "spot", "on-demand"),
                    _require("karpenter.sh/capacity-type", "NotIn", "spot"),
                ],
            )
        ],
        breaks=[
            Break(
                _AT,
                [_require("karpenter.sh/capacity-type", "Exists"), _require(f"{_AWS}/instance-gpu-count", "Gt", "0")],
                "NodePool l4: can use spot machines, which are not allowed in this environment; set the requirement"
                " {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}",
            )
        ],
    ),
    Case(
        name="a cluster with other nodes by Karpenter",
        rule=gpu_pools.cluster_has_cpu_pool,
        given={"cluster": EKS, "eks": GROUP, "karpenter": _ANY},
        also=[
            (_AT, []),
            (_AT, [_ARCHITECTURE]),
            (_AT, [_require(f"{_AWS}/instance-gpu-name", "NotIn", "t4")]),
            (_AT, [_require(f"{_AWS}/instance-gpu-name", "DoesNotExist")]),
        ],
        breaks=[
            Break(
                _AT,
                [_require(f"{_AWS}/instance-gpu-count", "Gt", "0")],
                "Cluster eks: all node pools have GPUs; add one without GPUs for the cluster's system pods",
            )
        ],
        unknown={_AT: "Cluster eks"},
    ),
)
