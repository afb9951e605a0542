import gc
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pulumi
import pytest
from offline_builders import Rendering

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import Json
from gpu_tenancy.engine.recording import OfflineError, Registration
from gpu_tenancy.engine.render import Rendered, render

TEAM = """
    class Team(pulumi.ComponentResource):
        def __init__(self, name, opts=None):
            super().__init__("gpu-tenancy:team:Team", name, None, opts)
            child = pulumi.ResourceOptions(parent=self)
            self.namespace = k8s.core.v1.Namespace(f"{name}-namespace", metadata={"name": name}, opts=child)
            self.register_outputs({})
"""


def named(rendered: Rendered, name: str) -> Registration:
    (found,) = (one for one in rendered.registrations if one.name == name)
    return found


def test_a_registration_keeps_what_the_mock_monitor_drops(rendering: Rendering) -> None:
    rendered = rendering(
        TEAM
        + """
    provider = k8s.Provider("cluster", kubeconfig="{}")
    team = Team("ml", pulumi.ResourceOptions(providers=[provider]))
    k8s.apps.v1.Deployment(
        "server",
        metadata={"name": "server", "namespace": team.namespace.metadata.name},
        spec={"selector": {"match_labels": {"app": "x"}}, "template": {"metadata": {"labels": {"app": "x"}}}},
        opts=pulumi.ResourceOptions(
            parent=team, protect=True, ignore_changes=["spec.replicas"], retain_on_delete=True,
            delete_before_replace=True, aliases=[pulumi.Alias(name="old-server")],
        ),
    )
    """
    )
    namespace, server = named(rendered, "ml-namespace"), named(rendered, "server")
    assert server.urn == ("urn:pulumi:dev::gpu-tenancy::gpu-tenancy:team:Team$kubernetes:apps/v1:Deployment::server")
    assert server.parent == named(rendered, "ml").urn
    assert server.dependencies == (namespace.urn,)
    assert server.property_dependencies == {"metadata": (namespace.urn,)}
    assert server.provider.startswith(named(rendered, "cluster").urn + "::")
    assert server.protect
    assert server.retain_on_delete
    assert server.delete_before_replace
    assert server.ignore_changes == ("spec.replicas",)
    assert any("old-server" in alias for alias in server.aliases)
    assert named(rendered, "ml").parent == ""
    assert not named(rendered, "ml").custom


def test_inputs_are_camel_case_json_with_whole_numbers(rendering: Rendering) -> None:
    rendered = rendering("""
    k8s.autoscaling.v2.HorizontalPodAutoscaler(
        "server", metadata={"name": "server"},
        spec={"max_replicas": 50, "scale_target_ref": {"kind": "Deployment", "name": "server"}},
    )
    k8s.apiextensions.CustomResource(
        "queue", api_version="kueue.x-k8s.io/v1beta2", kind="ClusterQueue", metadata={"name": "ml"},
        spec={"fairSharing": {"weight": 0.5}, "nominalQuota": 8, "on": True},
    )
    """)
    assert named(rendered, "server").inputs["spec"] == {
        "maxReplicas": 50,
        "scaleTargetRef": {"kind": "Deployment", "name": "server"},
    }
    spec = named(rendered, "queue").inputs["spec"]
    assert spec == {"fairSharing": {"weight": 0.5}, "nominalQuota": 8, "on": True}
    assert isinstance(spec, dict)
    assert isinstance(spec["nominalQuota"], int)


REGION = "aws:index/getRegion:getRegion"
OUTPUTS: dict[str, tuple[str, dict[str, Json]]] = {
    "secrets are hidden": (
        """
        namespace = k8s.core.v1.Namespace("a", metadata={"name": "ml"})
        pulumi.export("namespace", namespace.metadata.name)
        pulumi.export("kubeconfig", pulumi.Output.secret({"token": "hunter2"}))
        """,
        {"kubeconfig": "[secret]", "namespace": "ml"},
    ),
    "an asynchronous program is awaited": (
        """
        async def main():
            return {"late": k8s.core.v1.Namespace("late", metadata={"name": "late"}).metadata.name}
        pulumi.run(main)
        """,
        {"late": "late"},
    ),
    "a call gets its answer": (
        f"""pulumi.export("region", pulumi.runtime.invoke("{REGION}", {{}}).value["id"])""",
        {"region": "eu-west-1"},
    ),
    "a program runs in its own folder": (
        """
        import pathlib, sys
        pulumi.export("here", str(pathlib.Path.cwd()) == str(pathlib.Path(__file__).parent) == sys.path[0])
        """,
        {"here": True},
    ),
}


@pytest.mark.parametrize(("source", "outputs"), OUTPUTS.values(), ids=OUTPUTS)
def test_a_program_has_its_outputs(source: str, outputs: dict[str, Json], rendering: Rendering) -> None:
    before = Path.cwd()
    rendered = rendering(source, answers={REGION: {"id": "eu-west-1"}})
    assert rendered.outputs == outputs
    assert "hunter2" not in repr(rendered)
    assert Path.cwd() == before


def test_a_read_resource_and_a_repeated_urn_are_kept(rendering: Rendering) -> None:
    (read,) = rendering("""k8s.core.v1.Namespace.get("shared", "kube-system")""").registrations
    assert (read.name, read.external_id) == ("shared", "kube-system")
    rendered = rendering("""
    k8s.core.v1.Namespace("same", metadata={"name": "b"})
    k8s.core.v1.Namespace("same", metadata={"name": "a"})
    """)
    assert [one.inputs["metadata"] for one in rendered.registrations] == [{"name": "a"}, {"name": "b"}]


def test_resources_declared_inside_an_apply_are_awaited(rendering: Rendering) -> None:
    rendered = rendering("""
    outer = k8s.core.v1.Namespace("outer", metadata={"name": "outer"})
    outer.id.apply(lambda id: k8s.core.v1.Namespace("inner", metadata={"name": f"{id}-inner"}))
    """)
    assert named(rendered, "inner").inputs["metadata"] == {"name": "outer-inner"}


def test_values_that_only_a_cluster_decides_are_unknown(rendering: Rendering) -> None:
    rendered = rendering("""
    service = k8s.core.v1.Service("s", metadata={"name": "s", "namespace": "ml"}, spec={})
    pulumi.export("id", service.id)
    pulumi.export("address", service.status.load_balancer)
    k8s.core.v1.ConfigMap("c", metadata={"name": "c"}, data={"host": service.status.apply(lambda s: 1 / 0)})
    """)
    assert named(rendered, "c").unknown_paths == (("data", "host"),)
    assert named(rendered, "c").shown["data"] == {"host": "[unknown]"}
    assert rendered.outputs == {"address": "[unknown]", "id": "ml/s"}


def test_unwraps_secrets_for_rules_but_never_prints_them(rendering: Rendering) -> None:
    rendered = rendering("""
    k8s.core.v1.ConfigMap(
        "c", metadata={"name": "c"},
        data={"plain": "x", "url": pulumi.Output.concat("https://", pulumi.Output.secret("hunter2"))},
    )
    """)
    registration = named(rendered, "c")
    assert registration.inputs["data"] == {"plain": "x", "url": "https://hunter2"}
    assert registration.secret_paths == (("data", "url"),)
    assert registration.shown["data"] == {"plain": "x", "url": "[secret]"}
    assert "hunter2" not in repr(registration)


def test_resource_passed_to_a_component_stays_a_resource(rendering: Rendering) -> None:
    rendered = rendering("""
    namespace = k8s.core.v1.Namespace("a", metadata={"name": "ml"})
    class Uses(pulumi.ComponentResource):
        namespace: pulumi.Output
        def __init__(self, name):
            super().__init__("gpu-tenancy:test:Uses", name, {"namespace": namespace})
    Uses("uses")
    """)
    assert named(rendered, "uses").inputs == {"namespace": named(rendered, "a").urn}


ERRORS: dict[str, tuple[str, type[BaseException], str]] = {
    "a call without an answer": (f"""pulumi.runtime.invoke("{REGION}", {{}})""", OfflineError,
        f"{REGION}: this function needs a cloud"),
    "transforms, which would not run": (
        """
        options = pulumi.ResourceOptions(transforms=[lambda args: None])
        k8s.core.v1.Namespace("a", metadata={"name": "a"}, opts=options)
        """,
        OfflineError,
        "transforms are not supported",
    ),
    "an exception after a resource": (
        """
        k8s.core.v1.Namespace("left-over", metadata={"name": "a"})
        raise KeyError("no such team")
        """,
        KeyError,
        "no such team",
    ),
    "an exception inside an apply": ("""pulumi.Output.from_input(0).apply(lambda zero: 1 / zero)""", ZeroDivisionError,
        "division by zero"),
    "an exit": ("""raise SystemExit("bad stack")""", SystemExit, "bad stack"),
}  # fmt: skip


@pytest.mark.parametrize(("source", "error", "message"), ERRORS.values(), ids=ERRORS)
def test_a_program_fails_with_its_error_and_leaves_nothing(
    source: str, error: type[BaseException], message: str, rendering: Rendering
) -> None:
    with pytest.raises(error, match=message):
        rendering(source)
    assert rendering("").registrations == ()


def test_each_run_has_its_own_stack_and_configuration(rendering: Rendering) -> None:
    source = """
    config = pulumi.Config()
    pulumi.export("all", [pulumi.get_stack(), pulumi.get_project(), config.get("a"), config.get_object("b")])
    """
    first = rendering(source, stack="dev", config={"gpu-tenancy:a": "1"})
    second = rendering(source, stack="prod", config={"gpu-tenancy:b": '{"x": [1]}'})
    assert first.outputs == {"all": ["dev", "gpu-tenancy", "1", None]}
    assert second.outputs == {"all": ["prod", "gpu-tenancy", None, {"x": [1]}]}


def test_a_folder_without_a_program_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConsoleError, match=r"no __main__.py, the program that makes .* `tenancy stack init FOLDER`"):
        render(tmp_path, project="p", stack="s", config={})


def test_two_programs_may_each_have_a_module_of_the_same_name(tmp_path: Path) -> None:
    found: list[object] = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "helpers.py").write_text(f"NAME = {name!r}\n")
        (folder / "__main__.py").write_text("import pulumi, helpers\npulumi.export('name', helpers.NAME)\n")
        found.append(render(folder, project="p", stack="s", config={}).outputs["name"])
    assert found == ["one", "two"]
    assert "helpers" not in sys.modules


def test_a_run_restores_the_process(rendering: Rendering) -> None:
    def state() -> tuple[object, ...]:
        return gc.get_threshold(), gc.get_freeze_count(), list(sys.path), pulumi.runtime.get_root_resource()

    rendering("")  # what the first import of the SDK itself changes is not ours
    before = state()
    rendering(TEAM + '    Team("ml")\n')
    assert state() == before


def test_a_collector_that_the_caller_froze_stays_frozen(rendering: Rendering) -> None:
    before: list[object] = [[]]
    gc.freeze()
    try:
        rendering("")
        after: list[object] = [[]]
        collected = {id(one) for one in gc.get_objects()}
        assert id(before) not in collected, "it was unfrozen"
        assert id(after) in collected
    finally:
        gc.unfreeze()


def test_the_same_stack_gives_the_same_bytes_twice(rendering: Rendering) -> None:
    source = (
        TEAM
        + """
    first = Team("a")
    for name in "bcdef":
        Team(name, pulumi.ResourceOptions(depends_on=[first]))
    """
    )
    texts = {json.dumps([asdict(one) for one in rendering(source).registrations]) for _ in range(3)}
    assert len(texts) == 1


@pytest.mark.process
def test_the_same_stack_gives_the_same_bytes_in_any_process(tmp_path: Path) -> None:
    (tmp_path / "__main__.py").write_text(
        "import pulumi\n"
        "parts = [pulumi.ComponentResource('t:t:T', name) for name in 'abcdef']\n"
        "pulumi.ComponentResource('t:t:T', 'z', {'k': {'y': 1, 'x': 2}}, pulumi.ResourceOptions(depends_on=parts))\n"
    )
    show = (
        "import sys, pathlib; from gpu_tenancy.engine.render import render; "
        "print(render(pathlib.Path(sys.argv[1]), project='p', stack='s', config={}).registrations)"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", show, str(tmp_path)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(texts) == 1
    assert b"t:t:T::z" in texts.pop()
