"""The real prometheus-adapter, built from its Go module, which serves Prometheus' metrics to autoscalers."""

import json
import os
import platform
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.progress import Report
from gpu_tenancy.embedded.building import find_go
from gpu_tenancy.embedded.platform import Platform

VERSION: Final = "v0.12.0"
BUILD: Final = "GPU_TENANCY_BUILD_ADAPTER"  # environment variable: build it
_MODULE: Final = f"sigs.k8s.io/prometheus-adapter@{VERSION}"
# Checksum of the module's content in the checksum database: https://sum.golang.org.
_SUM: Final = "h1:e29A6BIwA/NKxPZeuamBMHJsvz0sSUXTb92Obg7RMV4="


def adapter(report: Report) -> Path:
    """The cached program. It is built by `make signals` only (1,300 packages); without it, the test is skipped."""
    cache = Platform(Path(os.devnull)).cache
    kept = cache / "programs" / f"prometheus-adapter-{VERSION}-{platform.machine()}" / "adapter"
    if kept.is_file():
        return kept
    if not os.environ.get(BUILD):
        pytest.skip("prometheus-adapter is not built: run `make signals`")
    try:
        go = find_go((1, 22), cache, report)
    except ConsoleError as error:
        pytest.skip(f"prometheus-adapter is not built: {error}")
    kept.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=kept.parent) as text:
        folder = Path(text)
        found = go.output("mod", "download", "-json", _MODULE, folder=folder)
        module = json.loads(found.stdout or "{}")
        if "Dir" not in module:
            pytest.skip(f"prometheus-adapter is not built: {module.get('Error') or found.stderr}")
        assert module["Sum"] == _SUM
        shutil.copytree(module["Dir"], folder / "source", copy_function=shutil.copyfile)
        report(f"building prometheus-adapter {VERSION} from its Go module (first run only)")
        arguments = ("build", "-ldflags=-s -w", "-o", str(folder / "adapter"), "./cmd/adapter")
        done = go.output(*arguments, folder=folder / "source")
        if done.returncode:
            pytest.skip(f"prometheus-adapter is not built: {done.stderr[-300:]}")
        (folder / "adapter").replace(kept)
    return kept
