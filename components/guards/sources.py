"""The admission policies of `policies/`, with the values of a stack."""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from string import Template
from typing import Any, Final

from gpu_tenancy.base.tables import read_table
from gpu_tenancy.model.kinds import WorkloadKind
from gpu_tenancy.model.names import CHANNEL_CLASS
from gpu_tenancy.model.plan.guards import GuardsPlan
from gpu_tenancy.model.plan.images import own_images, prefix_expression
from gpu_tenancy.model.plan.service_accounts import ACCOUNTS_OF_PODS

from ..pods import ACCOUNT
from .cel import KINDS, gang_specs, key, literal, places_of_pods, queue_place

_READ: Final = re.compile(r"\bvariables\.(\w+)")
_OWNERS: Final = ("apps/Deployment", "apps/ReplicaSet", "apps/StatefulSet", "batch/Job", "/Pod")
"""Kinds whose children Kueue does not count again, beside its optional integrations."""


def scope(name: str) -> str:
    """The scope of a policy's resources: `Cluster` if it is about the Namespaces themselves, else `Namespaced`."""
    return _source(name).get("scope", "Namespaced")


def spec(name: str, guards: GuardsPlan) -> dict[str, Any]:
    """The spec of the ValidatingAdmissionPolicy `gpu-tenancy-<name>`."""
    source, shared = _source(name), _source("shared")
    own_values = {**shared["values"], **source.get("values", {})}
    marks = {**shared["expressions"], **_values(guards), **{name: literal(value) for name, value in own_values.items()}}

    def filled(texts: Mapping[str, str]) -> dict[str, str]:
        return {name: Template(text).substitute(marks) for name, text in texts.items()}

    variables = filled({**source.get("variables", {}), **source["violations"]})
    unless = f"!({source['onlyIf']}) || " if "onlyIf" in source else ""
    used = _used(filled(shared["variables"]), (unless, *variables.values()))
    conditions = filled({condition: shared["conditions"][condition] for condition in source["conditions"]})
    return {
        "failure_policy": "Fail",
        "match_constraints": {
            "resource_rules": [
                {
                    **_resources(rule, guards),
                    "api_versions": ["*"],
                    "operations": rule.get("operations", ["CREATE", "UPDATE"]),
                    "scope": scope(name),
                }
                for rule in source["resources"]
            ]
        },
        "match_conditions": _expressions(conditions),
        "variables": _expressions({**used, **variables}),
        "validations": [
            {
                "expression": f"{unless}size(variables.{violation}) == 0",
                "message_expression": f"string(variables.{violation}[0])",
                "message": f"violates the rule gpu-tenancy-{name}",
                "reason": "Forbidden",
            }
            for violation in source["violations"]
        ],
    }


def _expressions(texts: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "expression": text} for name, text in texts.items()]


@cache
def _source(name: str) -> dict[str, Any]:
    return read_table(Path(__file__).with_name("policies") / f"{name}.yaml")


def _used(shared: Mapping[str, str], texts: Iterable[str]) -> dict[str, str]:
    """The shared variables that some expressions read, and those that these read, in their order."""
    names = set(_READ.findall(" ".join(texts)))
    for name in reversed([*shared]):
        if name in names:
            names.update(_READ.findall(shared[name]))
    return {name: text for name, text in shared.items() if name in names}


def _resources(rule: Mapping[str, Any], guards: GuardsPlan) -> dict[str, list[str]]:
    """API groups and resources, of which each combination that exists is meant."""
    if "kinds" not in rule:
        return {"api_groups": rule["groups"], "resources": rule["names"]}
    kinds = {
        "all": KINDS,
        "fromTemplate": [kind for kind in KINDS if kind.counts_template],
        "counted": _counted(guards),
    }
    groups = dict.fromkeys(kind.group for kind in kinds[rule["kinds"]])
    return {"api_groups": [*groups], "resources": [*dict.fromkeys(kind.plural for kind in kinds[rule["kinds"]])]}


def _counted(guards: GuardsPlan) -> list[WorkloadKind]:
    """Kinds that Kueue counts by their pod template."""
    return [kind for kind in KINDS if kind.counts_template and queue_place(kind, guards.frameworks) == "object"]


def _values(guards: GuardsPlan) -> dict[str, str]:
    """CEL of what differs by stack, and of what is known of kinds."""

    def queued(place: str) -> list[str]:
        return [key(kind) for kind in KINDS if queue_place(kind, guards.frameworks) == place]

    integrated = (key(kind) for kind in KINDS if kind.group not in ("", "apps", "batch"))
    images = (prefix_expression(prefix) for prefix in (*guards.registries, *own_images()))
    values: dict[str, object] = {
        "exempt": guards.exempt,
        "makers": guards.makers,
        "trainer": [guards.trainer] if guards.trainer else [],
        "caches": [guards.caches] if guards.caches else [],
        "teamLabel": guards.label[0],
        "teamLabelValue": guards.label[1],
        "spared": guards.spared,
        "gpuResources": guards.names,
        "gpuTaints": guards.taints,
        "claimsAreGpus": not guards.channels,
        "maxPerNode": guards.max_per_node,
        "priorityClasses": guards.classes,
        "allowedImages": "|".join(images),
        "registries": guards.registries,
        "accountsOfPods": ACCOUNTS_OF_PODS,
        "workloadAccount": ACCOUNT,
        "channelClass": CHANNEL_CLASS,
        "kinds": [key(kind) for kind in KINDS],
        "counted": [key(kind) for kind in _counted(guards)],
        "trustedOwners": list(dict.fromkeys((*_OWNERS, *integrated, *guards.external))),
        "queuedByJobs": queued("jobs"),
        "queuedByPods": queued("templates"),
        "queuedByEither": queued("either"),
        "neverQueued": queued("never"),
    }
    return {
        **{name: literal(value) for name, value in values.items()},
        **places_of_pods(),
        "gangSpecs": gang_specs(),
    }
