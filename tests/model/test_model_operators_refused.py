"""Errors of operators: each shows the place, the rule and the fix."""

from builders import EXISTING, Data, errors, pool, team
from operators_builders import AMD_POOL, names


def test_intels_plugin_wants_the_label_by_which_it_finds_its_nodes() -> None:
    arc = {**AMD_POOL, "gpu": "Flex_170", "resource": "gpu.intel.com/i915"}
    sections: Data = {
        "cluster": EXISTING,
        "pools": {"cpu": pool("m7i.8xlarge", 3), "flex": arc},
        "teams": {"a": team()},
        "operators": {"intelDevicePlugin": "here"},
    }
    (error,) = errors(sections)
    assert error.startswith("pools.flex.labels: does not have the node label intel.feature.node.kubernetes.io/gpu")
    sections["pools"]["flex"] = {**arc, "labels": {"intel.feature.node.kubernetes.io/gpu": "true"}}
    assert names(sections) == ["cert-manager", "intel-device-plugins-operator", "intel-device-plugins-gpu"]
