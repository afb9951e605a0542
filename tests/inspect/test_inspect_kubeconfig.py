"""Which kubeconfig is meant."""

from pathlib import Path

import pytest

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.cluster.contexts import connect, kubeconfig, uses_embedded


def a_file(folder: Path, name: str) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("{}")
    return file


def test_it_is_found_as_kubectl_finds_it(tmp_path: Path) -> None:
    usual = a_file(tmp_path, ".kube/config")
    one, other = a_file(tmp_path, "one"), a_file(tmp_path, "other")
    home = {"HOME": str(tmp_path)}
    assert kubeconfig(None, home) == usual
    assert kubeconfig(None, {**home, "KUBECONFIG": f"{one}:{tmp_path / 'gone'}:{other}"}) == Path(f"{one}:{other}")
    assert kubeconfig(one, {**home, "KUBECONFIG": str(other)}) == one


def test_a_missing_kubeconfig_lists_the_places_searched(tmp_path: Path) -> None:
    with pytest.raises(
        ConsoleError, match=f"no kubeconfig found: {tmp_path}/.kube/config does not exist; set --kubeconfig"
    ):
        kubeconfig(None, {"HOME": str(tmp_path)})
    a_file(tmp_path, ".kube/config")
    with pytest.raises(ConsoleError, match="no kubeconfig found: KUBECONFIG is /no/where; set --kubeconfig"):
        kubeconfig(None, {"HOME": str(tmp_path), "KUBECONFIG": "/no/where"})
    with pytest.raises(ConsoleError, match="kubeconfig /no/where not found; set --kubeconfig"):
        kubeconfig(Path("/no/where"), {})


def test_without_a_kubeconfig_a_running_embedded_platform_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    home = {"HOME": str(tmp_path / "home")}
    assert not uses_embedded(home)
    a_file(tmp_path, "state/gpu-tenancy/embedded/kubeconfig")
    assert uses_embedded(home)
    assert not uses_embedded({**home, "KUBECONFIG": "/no/where"})
    a_file(tmp_path, "home/.kube/config")
    assert not uses_embedded(home)


def test_embedded_excludes_another_kubeconfig(tmp_path: Path) -> None:
    with pytest.raises(
        ConsoleError, match="--embedded cannot be combined with --kubeconfig or --context; remove one of them"
    ):
        connect(a_file(tmp_path, "one"), None, embedded=True)
