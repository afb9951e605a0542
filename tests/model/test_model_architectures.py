"""Arm nodes: which images are known to run on them, and what is said of the others."""

from builders import PROVIDED, Data, job, pool, server, stack, team

from gpu_tenancy.model.catalogue.operators import charts, operators
from gpu_tenancy.model.catalogue.releases import cloud_charts
from gpu_tenancy.model.checks.operators import unknown_architectures
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.source import Source

GB200: Data = {"gb200": {"guaranteed": 4}}


def unknown(sections: Data) -> list[str]:
    return unknown_architectures(Tree(load(Source(sections))))


def on_arm(**sections: object) -> Data:
    pools = {"cpu": pool("m7i.8xlarge", 3, labels={"node-type": "cpu"}), "gb200": pool("p6e-gb200.36xlarge", 4)}
    work = {"training": {"fit": job(gpus=4)}, "serving": {"chat": server()}}
    own = {"a": team(gpus=GB200, **work), "b": team(serving={"web": server(gpus=0)})}
    return stack(**{"cluster": {"cloud": "existing", **PROVIDED}, "pools": pools, "teams": own, **sections})


def test_all_images_of_clouds_and_of_operators_that_gb200_needs_have_arm64() -> None:
    rows = {**charts(), **cloud_charts()}
    for name in (*operators()["gpu_operator"].charts, *operators()["dra_driver"].charts, *cloud_charts(), "kueue"):
        images = rows[name].images
        assert images is None or set(images.architectures or ()) == {"amd64", "arm64"}, name


def test_only_images_of_fluid_are_unknown() -> None:
    images = {name: chart.images for name, chart in charts().items()}
    assert [name for name, row in images.items() if row is None or row.architectures is None] == ["fluid"]


def test_a_stack_without_arm_nodes_has_nothing_to_check() -> None:
    assert unknown(stack(operators={"fluid": "here"}, teams={"a": team(serving={"web": server(gpus=0)})})) == []


def test_images_of_what_users_run_on_arm_nodes_are_named() -> None:
    assert unknown(on_arm()) == ["the image of job fit of team a", "the image of server chat of team a"]


def test_images_of_another_version_and_those_that_no_source_names_are_unknown() -> None:
    installed = {"gpuOperator": {"install": "here", "version": "v26.7.0"}, "fluid": "here", "kueue": "here"}
    others = ["the images of gpuOperator v26.7.0", "the images of fluid 1.0.8"]
    assert unknown(on_arm(operators=installed))[:2] == others


def test_another_version_is_not_refused_for_what_is_known_of_the_catalogues() -> None:
    mi300x = {"cpu": 96, "memory": "1850Gi", "gpu": "mi300x-vf", "gpus": 8, "architecture": "arm64"}
    sections = on_arm(
        pools={"cpu": pool("m7i.8xlarge", 3), "mi": pool("arm-mi300x", 1)},
        machines={"arm-mi300x": mi300x},
        operators={"amdGpuOperator": {"install": "here", "version": "v1.6.0"}},
        teams={"a": team(gpus={"mi": {"guaranteed": 8}})},
    )
    assert unknown(sections) == ["the images of amdGpuOperator v1.6.0"]
