"""Cases for `workload_rules.operators`."""

from typing import Any, Final

from policy_builders import GONE, Break, Case, Sample

from workload_rules import operators

_RELEASE: Final = "kubernetes:helm.sh/v3:Release"
_OFF: Final = {"driver": {"enabled": False}, "toolkit": {"enabled": False}}


def release(chart: str = "gpu-operator", **props: Any) -> Sample:
    return Sample(_RELEASE, {"chart": chart, "version": "v26.3.3", **props}, "gpu-operator")


def eks(image: str, **labels: str) -> Sample:
    return Sample("aws:eks/nodeGroup:NodeGroup", {"amiType": image, "labels": labels}, "a100")


def gke(driver: str | None = "DEFAULT", image: str = "COS_CONTAINERD", labels: dict[str, str] | None = None) -> Sample:
    inputs = {} if driver is None else {"gpuDriverInstallationConfig": {"gpuDriverVersion": driver}}
    config = {"imageType": image, "guestAccelerators": [{"count": 8, **inputs}], "labels": labels or {}}
    return Sample("gcp:container/nodePool:NodePool", {"nodeConfig": config}, "a100")


def aks(driver: str = "", size: str = "Standard_ND96asr_v4", version: str = "/v20250501") -> Sample:
    profile = {"gpuProfile": {"driver": driver}} if driver else {}
    return Sample(f"azure-native:containerservice{version}:AgentPool", {"vmSize": size, **profile}, "a100")


def wants(pool: str, said: str, part: str, *, enabled: bool) -> str:
    found, wanted = ("true", "false") if enabled else ("false", "true")
    return (
        f"{pool}: has {said}, but Release gpu-operator has {part}.enabled {found}; set {part}.enabled: {wanted}, or"
        " change the pool's mode"
    )


_AL2023: Final = "amiType AL2023_x86_64_NVIDIA"
_NO_PLUGIN: Final = {"gke-no-default-nvidia-gpu-device-plugin": "true"}
_WITHOUT: Final = "without the label gke-no-default-nvidia-gpu-device-plugin"
_WITH: Final = "with the label gke-no-default-nvidia-gpu-device-plugin"
_LEAVE: Final = {f"nvidia.com/gpu.deploy.{part}": "false" for part in ("driver", "container-toolkit", "device-plugin")}

CASES: Final = (
    Case(
        name="versions of charts",
        rule=operators.charts_pinned,
        given={"release": release()},
        settings={"charts": ["our-*"]},
        also=[
            ("release: version", "1.2.3-rc.1+build"),
            ("release", release("./charts/ours", version="")),
            ("release", release("/srv/charts/ours", version="")),
            ("release", release("our-chart", version="")),
            ("release", release("https://charts.example.com/ours-1.2.3.tgz", version="")),
            ("release", release("oci://registry.example.com/charts/ours:1.2.3", version="")),
            ("release", Sample("kubernetes:helm.sh/v3:Chart", {"path": "charts/ours"})),
        ],
        breaks=[
            Break(
                "release: version",
                GONE,
                "Release gpu-operator: installs the latest version of gpu-operator; set version to one release number",
            ),
            Break(
                "release: version",
                ">=26.3",
                "Release gpu-operator: version >=26.3 of gpu-operator is not an exact version; set one release"
                " number, such as 1.2.3",
            ),
            Break(
                "release: version",
                "latest",
                "Release gpu-operator: version latest of gpu-operator is not an exact version; set one release"
                " number, such as 1.2.3",
            ),
            Break(
                "release",
                Sample("kubernetes:helm.sh/v4:Chart", {"chart": "oci://registry.example.com/kueue", "version": "0.19"}),
                "Chart it: version 0.19 of oci://registry.example.com/kueue is not an exact version; set one"
                " release number, such as 1.2.3",
            ),
        ],
        unknown={"release: version": "Release gpu-operator", "release: chart": "Release gpu-operator"},
    ),
    Case(
        name="the operator beside pools of EKS",
        rule=operators.gpu_operator_driver_mode,
        given={"pool": eks("AL2023_x86_64_NVIDIA"), "operator": release(values=_OFF)},
        also=[
            ("operator", release("keda", values={})),
            ("operator", GONE),
            ("pool", eks("AL2023_x86_64_STANDARD")),
            ("pool", eks("BOTTLEROCKET_x86_64_NVIDIA", **_LEAVE)),
        ],
        breaks=[
            Break("operator: values.driver.enabled", GONE, wants("NodeGroup a100", _AL2023, "driver", enabled=True)),
            Break(
                "operator: values",
                GONE,
                (
                    wants("NodeGroup a100", _AL2023, "driver", enabled=True),
                    wants("NodeGroup a100", _AL2023, "toolkit", enabled=True),
                ),
            ),
            Break(
                "pool",
                eks("BOTTLEROCKET_x86_64_NVIDIA"),
                wants("NodeGroup a100", "amiType BOTTLEROCKET_x86_64_NVIDIA", "devicePlugin", enabled=True),
            ),
        ],
        unknown={
            "pool: amiType": "NodeGroup a100",
            "operator: values": "NodeGroup a100",
            "operator: chart": "NodeGroup a100",
        },
    ),
    Case(
        name="the operator beside pools of EKS with Amazon Linux 2",
        rule=operators.gpu_operator_driver_mode,
        given={"pool": eks("AL2_x86_64_GPU"), "operator": release(values=_OFF)},
        also=[("pool", eks("AL2_x86_64"))],
        breaks=[
            Break(
                "operator: values.driver",
                GONE,
                wants("NodeGroup a100", "amiType AL2_x86_64_GPU", "driver", enabled=True),
            )
        ],
    ),
    Case(
        name="the operator beside pools of GKE",
        rule=operators.gpu_operator_driver_mode,
        given={
            "pool": gke(),
            "operator": release(
                "nvidia/gpu-operator", values={"driver": {"enabled": False}, "devicePlugin": {"enabled": False}}
            ),
        },
        also=[("pool", gke(None)), ("pool", gke("INSTALLATION_DISABLED")), ("pool: nodeConfig.guestAccelerators", [])],
        breaks=[
            Break(
                "operator: values.devicePlugin",
                GONE,
                wants("NodePool a100", f"gpuDriverVersion DEFAULT {_WITHOUT}", "devicePlugin", enabled=True),
            ),
            Break(
                "operator: values.driver",
                GONE,
                wants("NodePool a100", f"gpuDriverVersion DEFAULT {_WITHOUT}", "driver", enabled=True),
            ),
            Break(
                "pool",
                gke("INSTALLATION_DISABLED", labels=_NO_PLUGIN),
                wants(
                    "NodePool a100", f"gpuDriverVersion INSTALLATION_DISABLED {_WITH}", "devicePlugin", enabled=False
                ),
            ),
            *(
                Break(
                    "pool",
                    gke(driver, labels=_NO_PLUGIN),
                    f"NodePool a100: has gpuDriverVersion {driver} {_WITH}, so no driver is installed; remove the"
                    " label, or set INSTALLATION_DISABLED",
                )
                for driver in ("LATEST", "DEFAULT")
            ),
        ],
        unknown={
            "pool: nodeConfig.guestAccelerators": "NodePool a100",
            "operator: values.driver.enabled": "NodePool a100",
        },
    ),
    Case(
        name="the operator that installs the driver on Ubuntu",
        rule=operators.gpu_operator_driver_mode,
        given={"pool": gke("INSTALLATION_DISABLED", "UBUNTU_CONTAINERD", _NO_PLUGIN), "operator": release()},
        breaks=[
            Break(
                "pool",
                gke("INSTALLATION_DISABLED", labels=_NO_PLUGIN),
                wants("NodePool a100", f"gpuDriverVersion INSTALLATION_DISABLED {_WITH}", "driver", enabled=True),
            ),
            Break(
                "pool",
                gke("DEFAULT", "UBUNTU_CONTAINERD"),
                (
                    wants("NodePool a100", f"gpuDriverVersion DEFAULT {_WITHOUT}", "devicePlugin", enabled=True),
                    wants("NodePool a100", f"gpuDriverVersion DEFAULT {_WITHOUT}", "driver", enabled=True),
                ),
            ),
        ],
        unknown={"pool: nodeConfig.imageType": "NodePool a100"},
    ),
    Case(
        name="the operator beside pools of AKS",
        rule=operators.gpu_operator_driver_mode,
        given={"pool": aks(), "operator": release("oci://registry.example.com/gpu-operator", values=_OFF)},
        also=[
            ("pool", aks("Install", version="")),
            ("pool", aks(size="Standard_D8s_v5")),
            ("pool", aks(size="Standard_ND96isr_MI300X_v5")),
        ],
        breaks=[
            Break(
                "pool",
                aks("None"),
                (
                    wants("AgentPool a100", "gpuProfile.driver None", "driver", enabled=False),
                    wants("AgentPool a100", "gpuProfile.driver None", "toolkit", enabled=False),
                ),
            ),
            Break(
                "operator: values.toolkit",
                GONE,
                wants("AgentPool a100", "gpuProfile.driver Install", "toolkit", enabled=True),
            ),
        ],
        unknown={"pool: vmSize": "AgentPool a100"},
    ),
)
