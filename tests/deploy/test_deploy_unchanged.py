"""A deployment that would change nothing is recognised without Pulumi's engine, and one that would never is."""

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any, Final, TypeAlias

import pytest
from deploy_builders import PROJECT, State, sections, state_of
from test_deploy_deploying import Opened, opened

from gpu_tenancy.deploy.recovering import PROVIDERS, marked
from gpu_tenancy.deploy.unchanged import unchanged
from gpu_tenancy.engine.recording import Registration
from gpu_tenancy.engine.render import Rendered

__all__ = ["opened"]
MARK: Final = f"{PROJECT}/ml"
Entries: TypeAlias = dict[str, dict[str, Any]]
VERSION: Final = "4.34.2"


def installed(_: str) -> str:
    """The version of the plugin's package."""
    return VERSION


def secret(value: Any) -> dict[str, Any]:
    """A secret as `pulumi stack export --show-secrets` has it."""
    return {
        "4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270",
        "plaintext": json.dumps(value),
    }


def complete(state: State, rendered: Rendered) -> State:
    """A state with what Pulumi writes of resources beside their places."""
    by_urn = {one.urn: one for one in rendered.registrations}
    first, *entries = deepcopy(state["resources"])
    for entry in entries:
        one = by_urn[entry["urn"]]
        entry["inputs"] = _inputs(one) if one.custom else {}
    return {"resources": [{**first, "outputs": dict(rendered.outputs)}, *entries]}


def _inputs(one: Registration) -> dict[str, Any]:
    if one.type.startswith(PROVIDERS):
        hidden = {key: secret(value) if key == "kubeconfig" else value for key, value in one.inputs.items()}
        return {**hidden, "version": VERSION, "__internal": {}}
    return deepcopy(marked({key: value for key, value in one.inputs.items() if value is not None}, MARK))


@pytest.fixture
def rendered(opened: Opened) -> Rendered:
    environment, _ = opened(sections(), {"ml": state_of(sections())})
    return environment.render("ml")


@pytest.fixture
def state(rendered: Rendered, monkeypatch: pytest.MonkeyPatch) -> State:
    monkeypatch.setattr("gpu_tenancy.deploy.unchanged.version", installed)
    return complete(state_of(sections()), rendered)


def test_what_was_deployed_by_the_same_program_is_unchanged(rendered: Rendered, state: State) -> None:
    assert unchanged(rendered, state, MARK)


def quota(entries: Entries) -> dict[str, Any]:
    return next(one for one in entries.values() if one["type"].endswith(":ResourceQuota"))


def provider(entries: Entries) -> dict[str, Any]:
    return next(one for one in entries.values() if one["type"].startswith(PROVIDERS))


def edit_a_value(entries: Entries) -> None:
    hard = quota(entries)["inputs"]["spec"]["hard"]
    hard[next(iter(hard))] = "999"


def lose_the_mark(entries: Entries) -> None:
    del quota(entries)["inputs"]["metadata"]["annotations"]


def gain_a_field(entries: Entries) -> None:
    quota(entries)["inputs"]["spec"]["scopes"] = ["Terminating"]


def lose_an_object(entries: Entries) -> None:
    del entries[quota(entries)["urn"]]


def keep_an_object(entries: Entries) -> None:
    entries["more"] = {**deepcopy(quota(entries)), "urn": "urn:pulumi:ml::p::kubernetes:core/v1:ResourceQuota::more"}


def wait_for_a_deletion(entries: Entries) -> None:
    entries["old"] = {**deepcopy(quota(entries)), "delete": True}


def be_protected(entries: Entries) -> None:
    quota(entries)["protect"] = True


def depend_on_nothing(entries: Entries) -> None:
    quota(entries)["dependencies"] = []


def have_another_plugin(entries: Entries) -> None:
    provider(entries)["inputs"]["version"] = "4.0.0"


def have_another_cluster(entries: Entries) -> None:
    provider(entries)["inputs"]["kubeconfig"] = secret("elsewhere")


def have_another_output(entries: Entries) -> None:
    next(iter(entries.values()))["outputs"]["environment"] = "another"


@pytest.mark.parametrize(
    "edit",
    [
        edit_a_value,
        lose_the_mark,
        gain_a_field,
        lose_an_object,
        keep_an_object,
        wait_for_a_deletion,
        be_protected,
        depend_on_nothing,
        have_another_plugin,
        have_another_cluster,
        have_another_output,
    ],
)
def test_a_state_that_differs_in_one_place_is_not(
    rendered: Rendered, state: State, edit: Callable[[Entries], None]
) -> None:
    entries: Entries = {one["urn"]: one for one in state["resources"]}
    edit(entries)
    assert not unchanged(rendered, {"resources": [*entries.values()]}, MARK)


def test_neither_is_a_program_whose_values_only_an_engine_knows(rendered: Rendered, state: State) -> None:
    *rest, last = sorted(rendered.registrations, key=lambda one: one.custom)
    unknown = replace(last, unknown_paths=(("spec",),))
    assert not unchanged(Rendered(PROJECT, "ml", (*rest, unknown), rendered.outputs), state, MARK)


def test_pulumi_is_not_asked_where_nothing_changes(opened: Opened, state: State) -> None:
    environment, backend = opened(sections(), {"ml": state})
    assert [(one.changes, one.teams) for one in environment.preview(policies=False)] == [
        ({"same": len(state["resources"])}, {})
    ]
    assert backend.done == []
    environment.preview()
    assert backend.done == ["preview ml"]


def test_a_part_that_is_the_same_is_left_alone(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_tenancy.deploy.unchanged.version", installed)
    states = {"ml.tenancy": state_of(sections(split=True), "tenancy")}
    environment, _ = opened(sections(split=True), states)
    parts = {name: complete(found, environment.render(name)) for name, found in states.items()}
    environment, backend = opened(sections(split=True), parts)
    environment.preview(policies=False)
    assert backend.done == []
    edited = sections(split=True)
    edited["teams"]["one"]["objects"] = {"services": 3}
    environment, backend = opened(edited, parts)
    environment.preview(policies=False)
    assert backend.done == ["preview ml.tenancy"]
