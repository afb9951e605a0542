"""A real API server accepts a tree, wave by wave."""

from pathlib import Path

import pytest
from gitops_builders import built, folders, key, tree

from gpu_tenancy.base.json import Json
from gpu_tenancy.kube.apply import apply
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import ApiError


def test_api_server_accepts_waves_in_order(cluster: Cluster, tmp_path: Path) -> None:
    files = tree("local")
    waves: list[list[dict[str, Json]]] = [built(files, folder) for folder in folders(files)]
    assert len(waves) > 3
    inventory = tmp_path / "inventory.json"
    # The order is not for show: without what comes before, the last wave is refused.
    with pytest.raises(ApiError, match=r'namespaces "ml-[a-z]+" not found'):
        cluster.apply(waves[-1][0], dry_run=True)
    try:
        for number, wave in enumerate(waves, 1):
            for one in wave:
                assert key(cluster.apply(one, dry_run=True)) == key(one)
            apply(cluster, waves[:number], inventory)
    finally:
        apply(cluster, [], inventory)
