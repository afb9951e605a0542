"""Cases for `cloud_rules.coverage`: what other types create with GPUs, and what looks alike without."""

from dataclasses import replace
from typing import Any, Final

from policy_builders import UNKNOWN, Break, Case, Sample, manifest

from cases.clouds import GKE, GROUP, NATIVE_SELF_MANAGED, SELF_MANAGED, SELF_TEMPLATE
from cloud_rules import coverage

_FIX: Final = "use a node pool, or exempt the resource"
_GROUP_FIX: Final = "add the tag kubernetes.io/cluster/<name> if they are nodes, or exempt the resource"
_INSTANCE: Final = "aws:ec2/instance:Instance"
_FLEET: Final = "aws:ec2/fleet:Fleet"
_STACK: Final = "aws:cloudformation/stack:Stack"
_BATCH: Final = "aws:batch/computeEnvironment:ComputeEnvironment"
_SCALE_SET: Final = "azure-native:compute:VirtualMachineScaleSet"
_GCE: Final = "gcp:compute/instance:Instance"
_T4: Final = "projects/ml/zones/us-central1-a/acceleratorTypes/nvidia-tesla-t4"
_ASG: Final = "aws:autoscaling/group:Group"
_WEB: Final = replace(SELF_MANAGED, props={**SELF_MANAGED.props, "tags": [{"key": "Name", "value": "web"}]}, name="web")
_CPU_TEMPLATE: Final = replace(SELF_TEMPLATE, props={"name": "self", "instanceType": "t3.micro"})


def _gpus(place: str, names: str, kind: str, fix: str = _FIX) -> str:
    return f"{place}: {names}: GPUs that no rule of this pack evaluates in {kind}; {fix}"


def _resource(kind: str, **props: Any) -> Sample:
    return Sample(kind, props, "it")


def _override(**override: Any) -> dict[str, Any]:
    """A configuration of a fleet with one machine, by type or by attributes."""
    return {"overrides": [override]}


def _found(names: str, kind: str, **props: Any) -> Break:
    """A resource of another type that creates machines with GPUs."""
    return Break("it", _resource(kind, **props), _gpus(f"{kind.rsplit(':', 1)[-1]} it", names, kind))


def _unread(kind: str, instead: str, **props: Any) -> Break:
    """A cluster or pool that no rule reads."""
    place = f"{kind.rsplit(':', 1)[-1]} it"
    message = f"{place}: {kind} is not evaluated by any rule of this pack; use {instead}, or exempt the resource"
    return Break("it", _resource(kind, **props), message)


def _object(text: str) -> Sample:
    return manifest(f"metadata: {{name: it}}\n{text}")


CASES: Final = (
    Case(
        name="machines of AWS outside clusters",
        rule=coverage.gpu_machines_evaluated,
        given={"it": _resource(_INSTANCE, instanceType="t3.micro", tags={"Name": "bastion"})},
        also=[
            ("it", _resource(_INSTANCE, instanceType="t3.micro", tags={"instanceType": "p5.48xlarge"})),
            ("it", _resource("aws:route53/record:Record", name="g5.example.com", type="A")),
            ("it", _resource("aws:ebs/volume:Volume", size=UNKNOWN, availabilityZone="us-east-1a")),
            ("it", _resource("aws:rds/instance:Instance", instanceClass="db.r6g.large", tags=UNKNOWN)),
            ("it", _resource(_BATCH, computeResources={"instanceTypes": ["optimal", "c7i"]})),
            (
                "it",
                _resource(
                    _FLEET, launchTemplateConfigs=[{"overrides": [{"instanceRequirements": {"vcpuCount": {"min": 2}}}]}]
                ),
            ),
            ("it", GROUP),
            ("it", _resource("aws-native:s3:Bucket", bucketName="p5.48xlarge")),
            ("it", _resource("random:index/randomId:RandomId", instanceType="p5.48xlarge")),
        ],
        breaks=[
            _found("p5.48xlarge", _INSTANCE, instanceType="p5.48xlarge"),
            _found("p5.48xlarge", "aws:ec2/spotInstanceRequest:SpotInstanceRequest", instanceType="p5.48xlarge"),
            _found("g6f.xlarge", "aws-native:ec2:Instance", instanceType="g6f.xlarge"),
            _found("p5.48xlarge", "aws:ec2/capacityReservation:CapacityReservation", instanceType="p5.48xlarge"),
            _found("p5", "aws:ec2/dedicatedHost:DedicatedHost", instanceFamily="p5"),
            _found("g5.xlarge", "aws:ec2/launchConfiguration:LaunchConfiguration", instanceType="g5.xlarge"),
            _found(
                "p5.48xlarge, g6.xlarge",
                _FLEET,
                launchTemplateConfigs=[
                    {"overrides": [{"instanceType": name} for name in ("p5.48xlarge", "m7i.large", "g6.xlarge")]}
                ],
            ),
            _found(
                "a machine by instanceRequirements",
                _FLEET,
                launchTemplateConfigs=[_override(instanceRequirements={"acceleratorCount": {"min": 1}})],
            ),
            _found(
                "p5.48xlarge",
                "aws:ec2/spotFleetRequest:SpotFleetRequest",
                launchSpecifications=[{"instanceType": "p5.48xlarge"}],
            ),
            _found("p4d", _BATCH, computeResources={"instanceTypes": ["p4d", "c7i"], "maxVcpus": 960}),
            # A machine that is unknown hides none that is known.
            _found(
                "p5.48xlarge",
                _FLEET,
                launchTemplateConfigs=[_override(instanceType=name) for name in (UNKNOWN, "p5.48xlarge")],
            ),
            _found("p5.48xlarge", "aws:sagemaker/notebookInstance:NotebookInstance", instanceType="ml.p5.48xlarge"),
            _found("g5.xlarge", "aws:emr/cluster:Cluster", coreInstanceGroup={"instanceType": "g5.xlarge"}),
        ],
        unknown={"it: instanceType": "Instance it"},
    ),
    Case(
        name="machines of AWS by launch templates",
        rule=coverage.gpu_machines_evaluated,
        given={"web": _WEB, "template": _CPU_TEMPLATE},
        also=[
            ("web", SELF_MANAGED),
            ("web", NATIVE_SELF_MANAGED),
            ("web: launchTemplate", {}),
            ("web", _resource("aws:ssm/parameter:Parameter", value="p5.48xlarge")),
        ],
        breaks=[
            Break("template", SELF_TEMPLATE, _gpus("Group web", "g6.12xlarge", _ASG, _GROUP_FIX)),
            Break("template: instanceType", "p5.48xlarge", _gpus("Group web", "p5.48xlarge", _ASG, _GROUP_FIX)),
            Break(
                "web: mixedInstancesPolicy",
                {"launchTemplate": {"overrides": [{"instanceType": "p5.48xlarge"}]}},
                _gpus("Group web", "p5.48xlarge", _ASG, _GROUP_FIX),
            ),
        ],
        unknown={
            "web: launchTemplate.name": "Group web",
            "web: launchTemplate": "Group web",
            "web: tags": "Group web",
            "template: instanceType": "Group web",
        },
    ),
    Case(
        name="machines by launch templates, found by the dependency",
        rule=coverage.gpu_machines_evaluated,
        given={
            "it": replace(
                _resource(_INSTANCE, launchTemplate={"id": UNKNOWN}),
                needs={"launchTemplate": (SELF_TEMPLATE.urn,), "tags": ()},
            ),
            "other": replace(
                _resource("aws:ssm/parameter:Parameter", value=UNKNOWN), needs={"value": (SELF_TEMPLATE.urn,)}
            ),
            "template": _CPU_TEMPLATE,
        },
        breaks=[Break("template", SELF_TEMPLATE, _gpus("Instance it", "g6.12xlarge", _INSTANCE))],
    ),
    Case(
        name="machines in templates of stacks",
        rule=coverage.gpu_machines_evaluated,
        given={"it": _resource(_STACK, templateBody="{InstanceType: m7i.large, Image: p5.example.com}")},
        also=[("it", _resource(_STACK, templateUrl="https://example.com/p5.48xlarge.yaml"))],
        breaks=[
            _found("p5.48xlarge", _STACK, templateBody="Resources: {Fleet: {InstanceType: p5.48xlarge}}"),
            _found(
                "Standard_NC6s_v3",
                "azure-native:resources:Deployment",
                properties={
                    "template": {"resources": [{"properties": {"hardwareProfile": {"vmSize": "Standard_NC6s_v3"}}}]}
                },
            ),
        ],
        unknown={"it: templateBody": "Stack it"},
    ),
    Case(
        name="a launch template in the template of a stack, found by the dependency",
        rule=coverage.gpu_machines_evaluated,
        given={
            "it": replace(
                _resource(_STACK, templateBody="Resources: {}"), needs={"templateBody": (SELF_TEMPLATE.urn,)}
            ),
            "template": _CPU_TEMPLATE,
        },
        breaks=[Break("template", SELF_TEMPLATE, _gpus("Stack it", "g6.12xlarge", _STACK))],
        unknown={"it: templateBody": "Stack it"},
    ),
    Case(
        name="machines of Azure outside clusters",
        rule=coverage.gpu_machines_evaluated,
        given={"it": _resource(_SCALE_SET, sku={"name": "Standard_D8s_v5", "capacity": 2})},
        also=[
            ("it: sku.name", UNKNOWN),
            ("it", _resource("azure:appservice/servicePlan:ServicePlan", skuName="P1v3")),
            ("it", _resource("azure-native:storage:StorageAccount", sku={"name": "Standard_LRS"})),
        ],
        breaks=[
            _found("standard_nc24ads_a100_v4", _SCALE_SET, sku={"name": "standard_nc24ads_a100_v4", "capacity": 2}),
            Break(
                "it",
                Sample(
                    "azure-native:compute/v20240301:VirtualMachine",
                    {"hardwareProfile": {"vmSize": "Standard_ND96isr_H100_v5"}},
                ),
                _gpus("VirtualMachine it", "Standard_ND96isr_H100_v5", "azure-native:compute:VirtualMachine"),
            ),
            _found(
                "Standard_NC6s_v3", "azure:compute/linuxVirtualMachine:LinuxVirtualMachine", size="Standard_NC6s_v3"
            ),
            _found(
                "Standard_NC6s_v3",
                "azure:compute/linuxVirtualMachineScaleSet:LinuxVirtualMachineScaleSet",
                sku="Standard_NC6s_v3",
            ),
            _found(
                "Standard_NC6s_v3",
                "azure-native:machinelearningservices:Compute",
                properties={"computeType": "AmlCompute", "properties": {"vmSize": "Standard_NC6s_v3"}},
            ),
            _found(
                "Standard_NC6s_v3",
                "azure-native:azurefleet:Fleet",
                vmSizesProfile=[{"name": "Standard_NC6s_v3"}, {"name": "Standard_D8s_v5"}],
            ),
            _found(
                "V100",
                "azure-native:containerinstance:ContainerGroup",
                containers=[{"resources": {"requests": {"cpu": 4, "gpu": {"count": 1, "sku": "V100"}}}}],
            ),
            _unread(
                "azure:containerservice/kubernetesCluster:KubernetesCluster",
                "azure-native:containerservice",
                defaultNodePool={"vmSize": "Standard_D2_v2"},
            ),
            _unread(
                "azure:containerservice/kubernetesClusterNodePool:KubernetesClusterNodePool",
                "azure-native:containerservice",
                vmSize="Standard_NC6s_v3",
            ),
        ],
    ),
    Case(
        name="machines of Google Cloud outside clusters",
        rule=coverage.gpu_machines_evaluated,
        given={"it": _resource(_GCE, machineType="e2-micro", tags=["web"])},
        also=[
            ("it: guestAccelerators", []),
            ("it: guestAccelerators", [{"type": "nvidia-tesla-t4", "count": 0}]),
            ("it", _resource("gcp:tpu/v2Vm:V2Vm", acceleratorType="v2-8", acceleratorConfig={"type": "V4"})),
            ("it", replace(GKE, props={**GKE.props, "enableAutopilot": False})),
        ],
        breaks=[
            _found("a3-highgpu-8g", "gcp:compute/instanceTemplate:InstanceTemplate", machineType="a3-highgpu-8g"),
            _found("a2-highgpu-1g", _GCE, machineType="zones/us-central1-a/machineTypes/a2-highgpu-1g"),
            _found("nvidia-tesla-t4", _GCE, machineType="n1-standard-8", guestAccelerators=[{"type": _T4, "count": 4}]),
            _found(
                "NVIDIA_TESLA_T4",
                "gcp:vertex/aiEndpoint:AiEndpoint",
                machineSpec={"acceleratorType": "NVIDIA_TESLA_T4", "acceleratorCount": 1},
            ),
            _found(
                "nvidia-l4", "gcp:cloudrunv2/service:Service", template={"nodeSelector": {"accelerator": "nvidia-l4"}}
            ),
            _found(
                "a3-highgpu-8g",
                "google-native:compute/v1:Instance",
                machineType="zones/us-central1-a/machineTypes/a3-highgpu-8g",
            ),
            _unread("google-native:container/v1:Cluster", "gcp:container", name="ml"),
            _unread("google-native:container/v1beta1:NodePool", "gcp:container", config={"machineType": "e2-medium"}),
            _unread(
                "gcp:container/awsNodePool:AwsNodePool", "clusters of these clouds", config={"instanceType": "t3.large"}
            ),
            Break(
                "it",
                replace(GKE, props={**GKE.props, "enableAutopilot": True}),
                "Cluster gke: Autopilot creates GPU nodes for the pods that request them, and no rule of this pack"
                " limits their number; limit the GPUs of each namespace with a ResourceQuota, and exempt the cluster",
            ),
        ],
        unknown={"it: machineType": "Instance it", "it: guestAccelerators": "Instance it"},
    ),
    Case(
        name="machines by objects of Kubernetes",
        rule=coverage.gpu_machines_evaluated,
        given={
            "it": _object("""
apiVersion: cloud.google.com/v1
kind: ComputeClass
spec: {priorities: [{machineFamily: n4}], nodePoolAutoCreation: {enabled: true}}
""")
        },
        also=[
            ("it: spec.priorities.0", {"nodepools": ["cpu"]}),
            ("it", _object("apiVersion: cloud.google.com/v1\nkind: BackendConfig\nspec: {machineType: a3-highgpu-8g}")),
            ("it", _object("apiVersion: v1\nkind: ConfigMap\ndata: {instanceType: p5.48xlarge}")),
        ],
        breaks=[
            Break(
                "it: spec.priorities.0",
                {"machineFamily": "a3"},
                _gpus("ComputeClass it", "a3", "kubernetes:cloud.google.com:ComputeClass"),
            ),
            Break(
                "it: spec.priorities.0",
                {"gpu": {"type": "nvidia-l4", "count": 1}},
                _gpus("ComputeClass it", "nvidia-l4", "kubernetes:cloud.google.com:ComputeClass"),
            ),
            Break(
                "it",
                _object("apiVersion: kaito.sh/v1beta1\nkind: Workspace\nresource: {instanceType: Standard_NC6s_v3}"),
                _gpus("Workspace it", "Standard_NC6s_v3", "kubernetes:kaito.sh:Workspace"),
            ),
            Break(
                "it",
                _object(
                    "apiVersion: infrastructure.cluster.x-k8s.io/v1beta2\nkind: AWSMachineTemplate\n"
                    "spec: {template: {spec: {instanceType: p5.48xlarge}}}"
                ),
                _gpus(
                    "AWSMachineTemplate it",
                    "p5.48xlarge",
                    "kubernetes:infrastructure.cluster.x-k8s.io:AWSMachineTemplate",
                ),
            ),
            Break(
                "it",
                _object(
                    "apiVersion: eks.aws.upbound.io/v1beta1\nkind: NodeGroup\n"
                    "spec: {forProvider: {instanceTypes: [p5.48xlarge]}}"
                ),
                _gpus("NodeGroup it", "p5.48xlarge", "kubernetes:eks.aws.upbound.io:NodeGroup"),
            ),
            Break(
                "it",
                _object("apiVersion: karpenter.sh/v1\nkind: NodeClaim\nspec: {requirements: []}"),
                "NodeClaim it: kubernetes:karpenter.sh:NodeClaim is not evaluated by any rule of this pack; use a"
                " NodePool, or exempt the resource",
            ),
        ],
        unknown={"it: spec.priorities.0.machineType": "ComputeClass it"},
    ),
    Case(
        name="machines in settings",
        rule=coverage.gpu_machines_evaluated,
        given={"it": _resource(_INSTANCE, instanceType="t3.micro")},
        settings={"machines": {"x9.*": 4}},
        breaks=[_found("x9.large", _INSTANCE, instanceType="x9.large")],
    ),
)
