"""A program whose parts are registered by several processes has the result of one process.

Each case runs in an interpreter of its own: a process with threads, as pytest's workers are, is never forked.
"""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from repository import ROOT

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only"),
]

HARNESS = """
import hashlib, json, os, pathlib, pickle, sys
import psutil
from gpu_tenancy.engine import sharing
from gpu_tenancy.engine.render import render

sharing.SMALLEST = 4
forks = 0
fork = os.fork
def counted():
    global forks
    forks += 1
    return fork()
os.fork = counted

def outcome(cores, config, folder=pathlib.Path(sys.argv[1])):
    global forks
    forks, os.environ[sharing.CORES] = 0, str(cores)
    try:
        rendered = render(folder, project="p", stack="s", config=config)
        result = hashlib.sha256(repr((rendered.registrations, rendered.outputs)).encode()).hexdigest()
        count = len(rendered.registrations)
    except Exception as error:
        result, count = f"{type(error).__name__}: {error}", 0
    left = len(psutil.Process().children())
    return {"cores": cores, "forks": forks, "result": result, "count": count, "left": left}
"""
PROGRAM = """
import asyncio, json, os, random
import pulumi, pulumi_kubernetes as k8s
from pulumi.runtime.settings import get_monitor

seed = int(pulumi.Config("p").require("seed"))
draw = random.Random(seed)
parts = [(number, draw.randint(0, 4), draw.random() < 0.3) for number in range(draw.randint(4, 40))]
base = pulumi.ComponentResource("t:t:Base", "base")
shared = [k8s.core.v1.Namespace(f"shared-{n}", metadata={"name": f"s{n}"}) for n in range(draw.randint(0, 5))]

def part(number, children, waits):
    after = pulumi.ResourceOptions(depends_on=[base, *shared])
    parent = pulumi.ComponentResource("t:t:Part", f"part-{number}", {}, after)
    inside = pulumi.ResourceOptions(parent=parent)
    space = k8s.core.v1.Namespace(f"space-{number}", metadata={"name": f"n{number}"}, opts=inside)
    for child in range(children):
        name = space.metadata.name if waits else f"n{number}"
        k8s.core.v1.ConfigMap(f"map-{number}-{child}", metadata={"namespace": name, "name": f"m{child}"}, opts=inside)
    EXTRA
    return space

async def program():
    own = get_monitor().share(parts)
    await asyncio.gather(*(part(*each).urn.future() for each in own))
    return {"parts": len(parts)}

pulumi.run(program)
"""


def outcomes(folder: Path, script: str, extra: str = "") -> list[dict[str, Any]]:
    """The output of a script that renders a program with the harness."""
    (folder / "__main__.py").write_text(PROGRAM.replace("EXTRA", extra or "pass"))
    done = subprocess.run(
        [sys.executable, "-c", HARNESS + textwrap.dedent(script), str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_same_registrations_in_any_number_of_processes(tmp_path: Path) -> None:
    script = "print(json.dumps([outcome(c, {'p:seed': str(s)}) for s in range(12) for c in (1, 2, 3, 4)]))"
    found = outcomes(tmp_path, script)
    for row in range(0, len(found), 4):
        assert len({(one["result"], one["count"]) for one in found[row : row + 4]}) == 1
        assert found[row]["count"] > 4
    assert [one["forks"] for one in found if one["cores"] == 1] == [0] * 12
    assert all(one["forks"] for one in found if one["cores"] == 2)
    assert {one["forks"] for one in found if one["cores"] == 4} > {3}
    assert not any(one["left"] for one in found)


@pytest.mark.parametrize(
    ("extra", "result"),
    [
        ("if number == 3: raise ValueError(f'part {number} is wrong')", "ValueError: part 3 is wrong"),
        ("if number > 1: raise ValueError(f'part {number} is wrong')", "ValueError: part 2 is wrong"),
        ("if number == 1 and os.getppid() == int(os.environ['FIRST']): os.kill(os.getpid(), 9)", ""),
        ("k8s.core.v1.Namespace('same', metadata={'name': f'same-{number}'})", ""),
    ],
    ids=["one part fails", "parts of all processes fail", "a process is killed", "parts have the same URN"],
)
def test_failures_are_the_same_as_in_one_process(tmp_path: Path, extra: str, result: str) -> None:
    script = """
    os.environ["FIRST"] = str(os.getpid())
    print(json.dumps([outcome(c, {"p:seed": "1"}) for c in (1, 3)]))
    """
    alone, together = outcomes(tmp_path, script, extra)
    assert (alone["forks"], together["forks"], together["left"]) == (0, 2, 0)
    assert together["result"] == alone["result"]
    assert together["count"] == alone["count"]
    assert alone["result"] == result or not result
    assert bool(alone["count"]) is not bool(result)


@pytest.mark.slow
def test_only_large_stacks_use_several_processes(tmp_path: Path) -> None:
    script = """
    from benchmarks.preview import stack
    from gpu_tenancy.model.source import Source, to_config
    sharing.SMALLEST, here = 100, pathlib.Path.cwd()
    rows = [outcome(c, to_config(Source(stack(n))), here) for n in (20, 101) for c in (1, 2)]
    print(json.dumps(rows))
    """
    small, small_by_two, large, large_by_two = outcomes(tmp_path, script)
    assert small | {"cores": 2} == small_by_two
    assert (small["forks"], large["forks"], large_by_two["forks"]) == (0, 0, 1)
    assert large_by_two["result"] == large["result"]
    assert large["count"] > 1500


def test_a_process_with_threads_is_not_forked(tmp_path: Path) -> None:
    script = """
    import threading
    end = threading.Event()
    threading.Thread(target=end.wait).start()
    print(json.dumps([outcome(4, {"p:seed": "1"})]))
    end.set()
    """
    assert outcomes(tmp_path, script)[0]["forks"] == 0
