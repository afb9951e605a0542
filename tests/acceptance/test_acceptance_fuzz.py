"""No file ends the program with a traceback, and a real API server accepts every stack that the model accepts.

Each run tries the same few hundred files; `make fuzz` tries 10,000 others.
"""

import os
import resource
import signal
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from acceptance_builders import Server, declared, only
from builders import stack as stack_with_one_team
from cli_builders import Project
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st
from stack_mutations import STACKS, stack_files

from gpu_tenancy.base.problems import Problem, StackError
from gpu_tenancy.base.texts import hidden
from gpu_tenancy.engine.objects import KubernetesObject, waves
from gpu_tenancy.engine.project import rendered
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.model.load import load
from gpu_tenancy.model.project import Declared, project_name
from gpu_tenancy.model.source import read_file
from gpu_tenancy.model.spec.cluster import ExistingCluster
from gpu_tenancy.review.build import review
from gpu_tenancy.review.comment import comment
from gpu_tenancy.review.page import page

THOROUGH: Final = "GPU_TENANCY_FUZZ" in os.environ
WANTED: Final = int(os.environ.get("GPU_TENANCY_FUZZ", "315"))  # number of files
# No deadline and no database: neither a busy machine nor an earlier run decides what is tried, or what passes.
TRIED: Final = settings(
    max_examples=-(-WANTED // len(STACKS)),
    deadline=None,
    database=None,
    derandomize=not THOROUGH,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)
CPU_SECONDS: Final = 120  # of one file; the usual is less than one second
MEMORY: Final = 2**30  # bytes that one file may add to the process; a preview of 1,000 teams takes 480 MiB
LONGEST: Final = 1500  # characters of a problem, with all known names at its place


class EndlessError(Exception):
    """A file that takes too long."""


@contextmanager
def bounded() -> Generator[None]:
    """Limits memory and processor time; other processes do not affect processor time."""

    def stop(*_: object) -> None:
        raise EndlessError

    before = signal.signal(signal.SIGVTALRM, stop)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + MEMORY, limits[1]))
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, limits)
        signal.signal(signal.SIGVTALRM, before)


def _address_space() -> int:
    """Bytes of this process; https://man7.org/linux/man-pages/man5/proc_pid_statm.5.html."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()


@pytest.fixture
def server(cluster: Cluster, namespace: str) -> Server:
    return Server(cluster, namespace)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project.at(tmp_path_factory.mktemp("fuzz") / "project")


def unclear(problem: Problem) -> str:
    """The missing part of a problem: a place, a rule, a fix, one line of a readable length."""
    text = str(problem)
    lacks = {
        "place": not problem.path,
        "rule": not problem.rule,
        "fix": not problem.fix,
        "visible characters": bool(hidden(text, "")),
        "brevity": len(text) > LONGEST,
    }
    missing = ", ".join(name for name, lacking in lacks.items() if lacking)
    return f"without {missing}: {text[:LONGEST]}" if missing else ""


@pytest.mark.parametrize("stack", STACKS)
def test_changed_files_are_refused_or_accepted_everywhere(stack: str, project: Project, server: Server) -> None:
    file = project.folder / "stacks" / f"Pulumi.{stack}.yaml"

    @TRIED
    @given(stack_files(stack), st.integers(0, 7))
    def tried(content: bytes, reviewed: int) -> None:
        file.write_bytes(content)
        with bounded():
            read, problems = read_or_refuse(stack, project, file)
            assert read or problems
            assert [text for problem in problems if (text := unclear(problem))] == []
            event("accepted" if read else "refused")
            if read is None or not (THOROUGH or isinstance(read.stack.cluster, ExistingCluster)):
                return  # The SDKs of clouds take seconds to import, and a second for each stack.
            preview = rendered(read)
            assert size(waves(preview.objects)) == len(preview.objects)
            if reviewed == 0:  # It takes as long as the rest.
                seen = review(preview, project.folder)
                assert page(seen)
                assert comment(seen)
        assert server.refusals(preview.objects) == []

    tried()


def read_or_refuse(stack: str, project: Project, file: Path) -> tuple[Declared | None, tuple[Problem, ...]]:
    try:
        source = read_file(file, f"stacks/{file.name}")
        return Declared(stack, project.folder, project_name(project.folder), source, load(source)), ()
    except StackError as error:
        return None, error.problems


def size(several: Sequence[Sequence[object]]) -> int:
    return sum(len(wave) for wave in several)


def test_the_api_server_rejects_invalid_caches(server: Server) -> None:
    # Else the test above would hold whatever is sent.
    quota = only(declared(stack_with_one_team()), "ResourceQuota", "budget")
    assert server.refusals([KubernetesObject(quota, "urn")]) == []
    quota["spec"]["naem"] = "x"
    (refusal,) = server.refusals([KubernetesObject(quota, "urn")])
    assert refusal.startswith("ResourceQuota: ")
