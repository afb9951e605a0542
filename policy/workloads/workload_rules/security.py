"""Rules for pods that could leave their node's bounds."""

from collections.abc import Iterator
from typing import Final

from pydantic import Field

from judge import ADVICE, MUST, AnyRule, Rule, Severity
from workload_rules.objects import like
from workload_rules.pods import CONTAINERS, PODS, Container, Pod, Tenants

_STANDARDS: Final = "https://kubernetes.io/docs/concepts/security/pod-security-standards/"


class Privileges(Tenants):
    """What a container may be allowed beyond the usual."""

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
        description="Capabilities that a container may add, by default those of the Pod Security level baseline.",
    )


def _privileged(container: Container, settings: Privileges) -> Iterator[str]:
    context = container.view.at("securityContext")
    if context.flag("privileged"):
        yield "is privileged; take securityContext.privileged out"
    added = [each.upper().removeprefix("CAP_") for each in context.texts("capabilities", "add")]
    beyond = sorted(set(added) - set(settings.capabilities))
    if beyond:
        yield f"adds {', '.join(beyond)}; take out what is not needed, or allow it in the rule's settings"
    if context.flag("windowsOptions", "hostProcess"):
        yield "is a process of its Windows host; take securityContext.windowsOptions.hostProcess out"
    if context.text("procMount", default="Default") != "Default":
        yield f"sees all of /proc ({context.text('procMount')}); take securityContext.procMount out"


PRIVILEGED: Final = Rule(
    name="no-privileged",
    says="No container is privileged, nor adds capabilities that give it the node.",
    why="A privileged container sees all of the node's GPUs and whatever other teams run there.",
    mend="Take the privilege out; GPUs need none.",
    link=_STANDARDS,
    severity=Severity.CRITICAL,
    level=MUST,
    on=CONTAINERS,
    judge=lambda container, settings: settings.of_tenant(container.pod.resource, _privileged(container, settings)),
    settings=Privileges,
)


class EscalationSettings(Tenants):
    """What a container says of gaining privileges."""

    said: bool = Field(
        default=False,
        description="Whether each container must say that it gains none, as the Pod Security level restricted wants.",
    )


def _escalates(container: Container, settings: EscalationSettings) -> Iterator[str]:
    may = container.view.flag("securityContext", "allowPrivilegeEscalation", default=settings.said)
    if may and container.within != "trainer":
        yield "may gain privileges; write securityContext.allowPrivilegeEscalation: false"


ESCALATION: Final = Rule(
    name="no-privilege-escalation",
    says="No container gains privileges while it runs.",
    why="A program of its image that runs as root for everybody gives root's rights to whoever is in the container.",
    mend="Write `allowPrivilegeEscalation: false` in the container's securityContext.",
    link=_STANDARDS,
    severity=Severity.LOW,
    level=ADVICE,
    on=CONTAINERS,
    judge=lambda container, settings: settings.of_tenant(container.pod.resource, _escalates(container, settings)),
    settings=EscalationSettings,
)


class HostNamespaces(Tenants):
    """Which of the node's namespaces pods may be in."""

    allowed: list[str] = Field(
        [], description="Namespaces of the node that pods may share: hostPID, hostIPC, hostNetwork."
    )


def _host_namespaces(pod: Pod, settings: HostNamespaces) -> Iterator[str]:
    for each in ("hostPID", "hostIPC", "hostNetwork"):
        if each not in settings.allowed and pod.spec.flag(each):
            yield f"has {each}; take it out"


HOST_NAMESPACES: Final = Rule(
    name="no-host-namespaces",
    says="No pod shares its node's processes, memory or network.",
    why="It could read what pods of other teams on the node do, and no NetworkPolicy binds it.",
    mend="Take `hostPID`, `hostIPC` and `hostNetwork` out; for a fabric of its own network, allow hostNetwork.",
    link=_STANDARDS,
    severity=Severity.HIGH,
    level=MUST,
    on=PODS,
    judge=lambda pod, settings: settings.of_tenant(pod.resource, _host_namespaces(pod, settings)),
    settings=HostNamespaces,
)


class HostPaths(Tenants):
    """Which folders of a node pods may have."""

    allowed: list[str] = Field(
        [],
        description="Paths on nodes that pods may mount, as patterns in which `*` stands for `/` too: `/mnt/disks/*`,"
        " or what a cloud's fabric between GPUs needs, as GKE's `/home/kubernetes/bin/nvidia/*`.",
    )


def _host_paths(pod: Pod, settings: HostPaths) -> Iterator[str]:
    for volume in pod.spec.items("volumes"):
        if not volume.has("hostPath"):
            continue
        path = volume.text("hostPath", "path")
        if ".." in path.split("/") or not like(path, settings.allowed):
            yield f"volume {volume.text('name')} is {path} of the node; use a claim, an emptyDir or an ephemeral volume"


HOST_PATHS: Final = Rule(
    name="no-host-paths",
    says="No pod mounts a folder or a device of its node.",
    why="Through the node's files a pod reads other teams' data and takes the node; through /dev/nvidia* it has GPUs"
    " that nobody counts.",
    mend="Use a PersistentVolumeClaim, an emptyDir or a generic ephemeral volume instead.",
    link="https://kubernetes.io/docs/concepts/storage/volumes/#hostpath",
    severity=Severity.CRITICAL,
    level=MUST,
    on=PODS,
    judge=lambda pod, settings: settings.of_tenant(pod.resource, _host_paths(pod, settings)),
    settings=HostPaths,
)


def _block_devices(container: Container) -> Iterator[str]:
    for device in container.view.items("volumeDevices"):
        yield f"has {device.text('devicePath')} as a raw device; mount the claim as a file system"


BLOCK_DEVICES: Final = Rule(
    name="no-block-devices",
    says="No container has a raw block device.",
    why="What reads and writes blocks goes past the rights on files, and past a volume's snapshots and scans.",
    mend="Write the claim under `volumeMounts`, with volumeMode Filesystem.",
    link="https://kubernetes.io/docs/concepts/storage/persistent-volumes/#raw-block-volume-support",
    severity=Severity.MEDIUM,
    level=ADVICE,
    on=CONTAINERS,
    judge=lambda container, settings: settings.of_tenant(container.pod.resource, _block_devices(container)),
    settings=Tenants,
)

RULES: Final[tuple[AnyRule, ...]] = (PRIVILEGED, ESCALATION, HOST_NAMESPACES, HOST_PATHS, BLOCK_DEVICES)
