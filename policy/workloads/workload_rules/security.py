"""Rules for privileges, host namespaces and host paths of pods."""

from collections.abc import Iterator
from typing import Final

from pydantic import Field

from rule_engine import ADVICE, MUST, AnyRule, Rule, Severity
from workload_rules.objects import matches_any
from workload_rules.pods import CONTAINERS, PODS, Container, Pod, Tenants

_STANDARDS: Final = "https://kubernetes.io/docs/concepts/security/pod-security-standards/"


class Privileges(Tenants):
    """Capabilities that containers can add."""

    capabilities: list[str] = Field(
        [
            "AUDIT_WRITE",
            "CHOWN",
            "DAC_OVERRIDE",
            "FOWNER",
            "FSETID",
            "KILL",
            "MKNOD",
            "NET_BIND_SERVICE",
            "SETFCAP",
            "SETGID",
            "SETPCAP",
            "SETUID",
            "SYS_CHROOT",
        ],
        description="Capabilities that a container may add. Default: those of the Pod Security level baseline.",
    )


def _privileged(container: Container, settings: Privileges) -> Iterator[str]:
    context = container.view.at("securityContext")
    if context.flag("privileged"):
        yield "is privileged; remove securityContext.privileged"
    added = context.texts("capabilities", "add")
    # Runtimes accept `cap_net_admin` too. A message has the name as it is in the program, so that a secret is hidden.
    beyond = sorted({name for name in added if name.upper().removeprefix("CAP_") not in settings.capabilities})
    if beyond:
        yield (
            f"adds capabilities {', '.join(beyond)}; remove those that are not needed, or allow them in the rule's"
            " settings"
        )
    if context.flag("windowsOptions", "hostProcess"):
        yield "is a Windows HostProcess container; remove securityContext.windowsOptions.hostProcess"
    if context.text("procMount", default="Default") != "Default":
        yield f"has an unmasked /proc (procMount {context.text('procMount')}); remove securityContext.procMount"


PRIVILEGED: Final = Rule(
    name="no-privileged",
    title="Containers must not be privileged, or add capabilities that give access to the node.",
    rationale="A privileged container can access all GPUs of the node, and all workloads of other teams there.",
    fix="Remove the privilege; GPUs do not require it.",
    link=_STANDARDS,
    severity=Severity.CRITICAL,
    level=MUST,
    on=CONTAINERS,
    check=lambda container, settings: settings.of_tenant(container.pod.resource, _privileged(container, settings)),
    settings=Privileges,
)


class EscalationSettings(Tenants):
    """Requirements for privilege escalation."""

    said: bool = Field(
        default=False,
        description=(
            "Whether each container must disallow privilege escalation explicitly, as the Pod Security level"
            " restricted requires."
        ),
    )


def _escalates(container: Container, settings: EscalationSettings) -> Iterator[str]:
    allowed = container.view.flag("securityContext", "allowPrivilegeEscalation", default=settings.said)
    if allowed and container.within != "trainer":
        yield "allows privilege escalation; set securityContext.allowPrivilegeEscalation: false"


ESCALATION: Final = Rule(
    name="no-privilege-escalation",
    title="Containers must not allow privilege escalation.",
    rationale="A setuid-root program in the image gives root privileges to any process in the container.",
    fix="Set `allowPrivilegeEscalation: false` in the container's securityContext.",
    link=_STANDARDS,
    severity=Severity.LOW,
    level=ADVICE,
    on=CONTAINERS,
    check=lambda container, settings: settings.of_tenant(container.pod.resource, _escalates(container, settings)),
    settings=EscalationSettings,
)


class HostNamespaces(Tenants):
    """Host namespaces that pods can use."""

    allowed: list[str] = Field([], description="Host namespaces that pods may use: hostPID, hostIPC, hostNetwork.")


def _host_namespaces(pod: Pod, settings: HostNamespaces) -> Iterator[str]:
    for host_namespace in ("hostPID", "hostIPC", "hostNetwork"):
        if host_namespace not in settings.allowed and pod.spec.flag(host_namespace):
            yield f"sets {host_namespace}; remove it"


HOST_NAMESPACES: Final = Rule(
    name="no-host-namespaces",
    title="Pods must not use the process, IPC or network namespaces of the host.",
    rationale="Such a pod can observe pods of other teams on the node, and NetworkPolicies do not apply to it.",
    fix=(
        "Remove `hostPID`, `hostIPC` and `hostNetwork`; if a GPU fabric has its own network, allow hostNetwork in"
        " the settings."
    ),
    link=_STANDARDS,
    severity=Severity.HIGH,
    level=MUST,
    on=PODS,
    check=lambda pod, settings: settings.of_tenant(pod.resource, _host_namespaces(pod, settings)),
    settings=HostNamespaces,
)


class HostPaths(Tenants):
    """Host paths that pods can mount."""

    allowed: list[str] = Field(
        [],
        description=(
            "Host paths that pods may mount, as patterns in which `*` also matches `/`: `/mnt/disks/*`, or what a"
            " cloud's GPU fabric needs, such as GKE's `/home/kubernetes/bin/nvidia/*`."
        ),
    )


def _host_paths(pod: Pod, settings: HostPaths) -> Iterator[str]:
    for volume in pod.spec.items("volumes"):
        if not volume.has("hostPath"):
            continue
        path = volume.text("hostPath", "path")
        if ".." in path.split("/") or not matches_any(path, settings.allowed):
            yield (
                f"volume {volume.text('name')} mounts the host path {path}; use a PersistentVolumeClaim, an"
                " emptyDir or an ephemeral volume"
            )


HOST_PATHS: Final = Rule(
    name="no-host-paths",
    title="Pods must not mount directories or devices of the host.",
    rationale=(
        "Through host paths, a pod can read other teams' data and take over the node; through /dev/nvidia*, it uses"
        " GPUs that are not counted."
    ),
    fix="Use a PersistentVolumeClaim, an emptyDir or a generic ephemeral volume instead.",
    link="https://kubernetes.io/docs/concepts/storage/volumes/#hostpath",
    severity=Severity.CRITICAL,
    level=MUST,
    on=PODS,
    check=lambda pod, settings: settings.of_tenant(pod.resource, _host_paths(pod, settings)),
    settings=HostPaths,
)


def _block_devices(container: Container) -> Iterator[str]:
    for device in container.view.items("volumeDevices"):
        yield f"uses {device.text('devicePath')} as a raw block device; mount the claim as a file system"


BLOCK_DEVICES: Final = Rule(
    name="no-block-devices",
    title="Containers must not use raw block devices.",
    rationale="Raw block access bypasses file permissions, and a volume's snapshots and scans.",
    fix="Set the claim under `volumeMounts`, with volumeMode Filesystem.",
    link="https://kubernetes.io/docs/concepts/storage/persistent-volumes/#raw-block-volume-support",
    severity=Severity.MEDIUM,
    level=ADVICE,
    on=CONTAINERS,
    check=lambda container, settings: settings.of_tenant(container.pod.resource, _block_devices(container)),
    settings=Tenants,
)

RULES: Final[tuple[AnyRule, ...]] = (PRIVILEGED, ESCALATION, HOST_NAMESPACES, HOST_PATHS, BLOCK_DEVICES)
