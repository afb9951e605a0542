"""Objects whose fields are beside `metadata`, and not in `spec` as those of the SDK's `CustomResource`."""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import pulumi


class PlainObject(pulumi.CustomResource):
    """An object of a kind that an operator defines, such as Kueue's WorkloadPriorityClass.

    Example:
        >>> PlainObject("low", "kueue.x-k8s.io/v1beta2", "WorkloadPriorityClass", {"metadata": {...}, "value": 1}, opts)
    """

    def __init__(
        self, name: str, api_version: str, kind: str, fields: Mapping[str, Any], opts: pulumi.ResourceOptions
    ) -> None:
        super().__init__(
            f"kubernetes:{api_version}:{kind}",
            name,
            {"apiVersion": api_version, "kind": kind, **fields},
            pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(version=version("pulumi-kubernetes"))),
        )
