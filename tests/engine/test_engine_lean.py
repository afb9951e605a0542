"""A preview with the SDK's functions replaced has the same registrations as with the SDK unchanged."""

import contextlib
import threading
from collections.abc import Callable

import pulumi
import pulumi.runtime.resource
import pulumi.runtime.rpc
import pytest
from offline_builders import Rendering

from gpu_tenancy.engine import lean
from gpu_tenancy.engine.project import preview
from gpu_tenancy.engine.render import Rendered
from gpu_tenancy.model.project import stack_names

STACKS = stack_names()

READING = """
    secret = k8s.core.v1.Secret(
        "secret", metadata={"name": "first"}, string_data={"key": pulumi.Output.secret("hidden"), "other": "plain"}
    )
    late = k8s.core.v1.ConfigMap(
        "late", metadata={"name": secret.metadata.name.apply(lambda name: f"after-{name}")},
        data={"key": secret.string_data["key"], "uid": secret.metadata.uid, "all": secret.string_data.apply(str)},
    )
    k8s.apps.v1.Deployment(
        "server",
        metadata={"name": pulumi.Output.concat(late.metadata["name"], "-", late.id), "labels": late.data},
        spec={
            "replicas": pulumi.Output.from_input(2).apply(lambda n: n + 1),
            "selector": {"match_labels": {"app": "x"}},
            "template": {"metadata": {"labels": {"app": "x"}}},
        },
        opts=pulumi.ResourceOptions(
            depends_on=pulumi.Output.from_input([secret]), aliases=[pulumi.Alias(name="old"), "urn:pulumi:a::b::c::d"]
        ),
    )
    read = k8s.core.v1.Namespace.get("there", "kube-system")
    pulumi.export("name", read.metadata.name)
    pulumi.export("data", late.data)
    pulumi.export("urn", late.urn)
    late.metadata.apply(lambda metadata: pulumi.export("from an apply", metadata.name))
"""


@pytest.fixture
def unchanged(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def change() -> None:
        monkeypatch.setattr(lean, "_supported", lambda: False)

    return change


def functions() -> list[object]:
    return [
        pulumi.runtime.rpc.resolve_outputs,
        pulumi.runtime.rpc.serialize_property,
        pulumi.runtime.resource.create_urn,
        pulumi.runtime.resource.__dict__["_get_stack_trace"],
    ]


def rendered_stack(stack: str) -> Rendered:
    return preview(stack).rendered


@pytest.mark.slow
@pytest.mark.parametrize("stack", STACKS)
def test_every_stack_is_registered_as_by_the_unchanged_sdk(stack: str, unchanged: Callable[[], None]) -> None:
    ours = rendered_stack(stack)
    unchanged()
    sdks = rendered_stack(stack)
    assert len(ours.registrations) > 50
    for own, other in zip(ours.registrations, sdks.registrations, strict=True):
        assert own == other
    assert ours.outputs == sdks.outputs


def test_a_program_that_reads_outputs_gets_the_same(rendering: Rendering, unchanged: Callable[[], None]) -> None:
    ours = rendering(READING)
    unchanged()
    sdks = rendering(READING)
    assert ours.registrations == sdks.registrations
    assert ours.outputs == sdks.outputs
    assert ours.outputs["name"] == "[unknown]"
    assert ours.outputs["data"] == "[secret]"


@pytest.mark.parametrize(
    "source",
    [
        'k8s.core.v1.ConfigMap("a", metadata={"name": "a"}).metadata.apply(lambda metadata: metadata.nothing)',
        'k8s.core.v1.ConfigMap("a", data=pulumi.Output.from_input({}).apply(lambda data: data["nothing"]))',
        'k8s.core.v1.ConfigMap("a", data=3j)',
        'k8s.core.v1.ConfigMap("a", opts=pulumi.ResourceOptions(depends_on=["a text"]))',
        'k8s.core.v1.ConfigMap("a", metadata={"name": ["a list"]}).metadata["name"].apply(print)',
        'a = k8s.core.v1.ConfigMap("a", data=3j); k8s.core.v1.ConfigMap("b", data={"a": a.metadata.name})',
    ],
)
def test_a_program_with_a_mistake_fails_the_same(
    source: str, rendering: Rendering, unchanged: Callable[[], None]
) -> None:
    def failure() -> tuple[type[BaseException], str]:
        with pytest.raises(Exception) as failed:  # noqa: PT011 - compared with the SDK's
            rendering(source)
        # The SDK waits for failed calls in any order, and each adds lines above the mistake.
        return failed.type, str(failed.value).splitlines()[-1]

    ours = failure()
    unchanged()
    assert ours == failure()


def test_the_functions_of_the_sdk_are_those_that_were_read() -> None:
    assert lean.differences() == [], (
        "these functions of Pulumi's SDK have changed: compare each with its replacement in lean.py, adapt that, "
        "and set READ_VERSION and the digests"
    )


@pytest.mark.parametrize("name", ["pulumi.runtime.rpc.resolve_outputs", "pulumi.runtime.rpc.gone"])
def test_an_sdk_with_another_function_is_used_unchanged(
    name: str, monkeypatch: pytest.MonkeyPatch, rendering: Rendering
) -> None:
    before = functions()
    other = {name: (lambda: None, "another digest")}
    monkeypatch.setattr(lean, "_REPLACED", {**lean.__dict__["_REPLACED"], **other})
    monkeypatch.setattr(lean, "READ_VERSION", "3.0.0")
    monkeypatch.setattr(lean, "_supported", lean.__dict__["_supported"].__wrapped__)
    assert lean.differences() == [name]
    with lean.lean():
        assert functions() == before
    assert len(rendering('k8s.core.v1.ConfigMap("a", metadata={"name": "a"})').registrations) == 1


def test_restores_the_sdk_after_overlapping_previews() -> None:
    before = functions()
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with lean.lean():
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=other)
    with contextlib.suppress(ZeroDivisionError), lean.lean():
        thread.start()
        assert inside.wait(60)
        assert functions() != before
        raise ZeroDivisionError
    assert functions() != before
    leave.set()
    thread.join()
    assert functions() == before


def test_a_preview_does_not_stay_in_memory(rendering: Rendering) -> None:
    rendering('k8s.core.v1.ConfigMap("a", metadata={"name": "a"})')
    monitor = pulumi.runtime.settings.get_monitor()
    assert "RecordingMonitor" not in repr(monitor)
