"""Code that comes with the pods of a job: an annotation of theirs, which the kubelet shows to them as a file.

https://kubernetes.io/docs/concepts/workloads/pods/downward-api/
"""

from collections.abc import Sequence
from typing import Any, Final

ANNOTATION: Final = "gpu-tenancy.dev/code"
"""Of pods: the archive, a compressed tar in base64."""
FOLDER: Final = "/code"
"""Where the code is in the container, and its command runs."""
_MOUNT: Final = "/gpu-tenancy"
_UNPACK: Final = f'cd {FOLDER} && base64 -d {_MOUNT}/code | tar -xzf - && exec "$@"'


def unpacking(command: Sequence[str]) -> list[str]:
    """A command that unpacks the code and then runs another one there; its image needs sh, base64, tar and gzip."""
    return ["/bin/sh", "-c", _UNPACK, "code", *command]


def code_volumes() -> list[dict[str, Any]]:
    """The volumes of a pod with code: where it is unpacked, and the archive."""
    field = {"fieldPath": f"metadata.annotations['{ANNOTATION}']"}
    archive = {"items": [{"path": "code", "fieldRef": field}]}
    return [{"name": "code", "emptyDir": {}}, {"name": "code-archive", "downwardAPI": archive}]


def code_mounts() -> list[dict[str, Any]]:
    """The mounts of its container."""
    return [
        {"name": "code", "mountPath": FOLDER},
        {"name": "code-archive", "mountPath": _MOUNT, "readOnly": True},
    ]
