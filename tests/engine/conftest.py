import textwrap
from collections.abc import Mapping
from pathlib import Path

import pytest
from offline_builders import Rendering

from gpu_tenancy.base.json import Json
from gpu_tenancy.engine.recording import NO_ANSWERS
from gpu_tenancy.engine.render import Rendered, render


@pytest.fixture
def rendering(tmp_path: Path) -> Rendering:
    def run(
        source: str,
        *,
        stack: str = "dev",
        config: Mapping[str, str] | None = None,
        answers: Mapping[str, Mapping[str, Json]] = NO_ANSWERS,
    ) -> Rendered:
        header = "import pulumi\nimport pulumi_kubernetes as k8s\n"
        (tmp_path / "__main__.py").write_text(header + textwrap.dedent(source))
        return render(tmp_path, project="gpu-tenancy", stack=stack, config=config or {}, answers=answers)

    return run
