"""Environments, and the states of their Pulumi stacks."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, TypeAlias

from builders import Data, stack, team
from repository import ROOT

from gpu_tenancy.deploy.states import ROOT as STACK_TYPE
from gpu_tenancy.deploy.states import State
from gpu_tenancy.engine.recording import Registration
from gpu_tenancy.engine.render import Rendered, render
from gpu_tenancy.model.plan.environment import KEY
from gpu_tenancy.model.source import Source, to_config

PROJECT: Final = "gpu-tenancy"
ANSWERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "pulumi:pulumi:StackReference": {"outputs": {"connection": {"kubeconfig": "{}", "identifier": "here"}}}
}
States: TypeAlias = dict[str, State]


def sections(cluster: Data | None = None, /, *, split: bool = False, **cohorts: str) -> Data:
    of_team = {"one": "a", "two": "b", "three": "org", **cohorts}
    return stack(
        **({"cluster": dict(cluster)} if cluster else {}),
        cohorts={"org": {}, "a": {"parent": "org"}, "b": {"parent": "org"}},
        teams={name: team(cohort=of, gpus={"h100": {"guaranteed": 4}}) for name, of in of_team.items() if of},
        **({"split": {}} if split else {}),
    )


@cache
def _rendered(content: str, part: str) -> Rendered:
    config = {**to_config(Source(json.loads(content))), **({KEY: part} if part else {})}
    return render(ROOT, project=PROJECT, stack=f"ml.{part}" if part else "ml", config=config, answers=ANSWERS)


def state_of(content: Data, part: str = "") -> State:
    """The state after the first deployment of a part, or of all as one stack."""
    name = f"ml.{part}" if part else "ml"
    rendered = _rendered(json.dumps(content), part)
    root = {"urn": f"urn:pulumi:{name}::{PROJECT}::{STACK_TYPE}::{PROJECT}-{name}", "custom": False, "type": STACK_TYPE}
    by_urn = {one.urn: one for one in rendered.registrations}
    ids = {urn: f"id-{number}" for number, urn in enumerate(by_urn)}
    ordered: dict[str, Registration] = {}

    def place(one: Registration) -> None:
        if one.urn not in ordered:
            for needed in (one.parent, one.provider.rpartition("::")[0], *one.dependencies):
                if needed in by_urn and needed != one.urn:
                    place(by_urn[needed])
            ordered[one.urn] = one

    for one in rendered.registrations:
        place(one)
    return {"resources": [root, *(entry(one, str(root["urn"]), ids) for one in ordered.values())]}


def entry(one: Registration, root: str, ids: Mapping[str, str]) -> Data:
    provider = one.provider.rpartition("::")[0]
    return {
        "urn": one.urn,
        "custom": one.custom,
        "type": one.type,
        "parent": one.parent or root,
        **({"external": True} if one.external_id else {}),
        "inputs": {},
        "dependencies": list(one.dependencies),
        "propertyDependencies": {"spec": list(one.dependencies)},
        **({"id": ids[one.urn]} if one.custom else {}),
        **({"provider": f"{provider}::{ids[provider]}"} if provider in ids else {}),
    }
