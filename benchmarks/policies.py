"""A thousand resources through both policy packs at once, each a process of its own, on two cores.

`python -m benchmarks.policies` prints what start-up and judging take, how the time grows with the number of teams, and
what the same rules would take by Pulumi's own SDK (`pulumi_policy.PolicyPack`), which reads a resource anew for each
rule; that is measured on fewer and scaled.
"""

import shutil
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from pulumi.runtime.proto.analyzer_pb2 import AnalyzeStackRequest

from benchmarks.preview import stack
from gpu_tenancy.engine.project import preview
from gpu_tenancy.engine.recording import Registration
from gpu_tenancy.engine.render import Rendered, render
from gpu_tenancy.model.project import project_folder
from gpu_tenancy.model.source import Source, to_config
from gpu_tenancy.packs.choosing import choose
from gpu_tenancy.packs.configuration import read_config
from gpu_tenancy.packs.evaluation import Session
from gpu_tenancy.packs.findings import PackResult
from gpu_tenancy.packs.process import pack_process
from gpu_tenancy.packs.requests import stack_request

RESOURCES: Final = 1000
TEAMS: Final = 100
GROWN: Final = 4
"""How many times as many teams the larger program has."""
CLOUDS: Final = 120
"""Of these, node pools, clusters and what goes with them."""
FEWER: Final = 100
"""Resources through the SDK."""
ROUNDS: Final = 5
PACKS: Final = ("workloads", "clouds")

_SDK = '''
"""The same rules by Pulumi's own SDK."""

import sys
from collections.abc import Mapping, Sequence

from pulumi_policy import PolicyPack, ResourceValidationPolicy, StackValidationPolicy
from pulumi_policy.proxy import UnknownValueError

from rule_engine.reading import View
from rule_engine.resources import Resource
from rule_engine.stacks import Stack
from rule_engine.secrets import Secrets
from rule_engine.evaluator import Evaluator
from {module} import PACK

evaluator = Evaluator(PACK)


def plain(value):
    if isinstance(value, Mapping):
        found = {{}}
        for key in value:
            try:
                found[key] = plain(value[key])
            except UnknownValueError:
                pass
        return found
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(item) for item in value]
    return value


def resource(args):
    return Resource(args.resource_type, args.urn, args.name, _props=View(plain(args.props)))


def one(rule):
    def validate(args, report):
        if rule.on.selects(Resource(args.resource_type)):
            for finding in evaluator.findings(rule, resource(args), Stack(())):
                report(finding.message)

    return ResourceValidationPolicy(rule.name, rule.title, validate)


def whole(rule):
    def validate(args, report):
        stack = Stack([resource(one) for one in args.resources])
        for one in stack.resources:
            if rule.on.selects(one):
                for found in evaluator.findings(rule, one, stack):
                    report(found.message, found.urn)

    return StackValidationPolicy(rule.name, rule.title, validate)


PolicyPack(PACK.name, [(whole if rule.whole else one)(rule) for rule in PACK.rules])
'''


def objects_of(teams: int) -> list[Registration]:
    """The Kubernetes objects of the platform of some teams."""
    source = Source(stack(teams))
    rendered = render(project_folder(), project="gpu-tenancy", stack="benchmark", config=to_config(source))
    return [one for one in rendered.registrations if one.custom and one.type.startswith("kubernetes:")]


def growth(folder: Path, config: Path | None) -> str:
    """The time of a pack for a program, and for one with four times as many teams, in one process.

    Only their ratio can be compared between machines: it is that of the numbers of resources if rules are linear.
    """
    few, many = (asked(objects_of(teams)) for teams in (TEAMS, TEAMS * GROWN))
    seconds: list[float] = []
    with pack_process(folder) as client:
        session = Session.of(client, read_config(config) if config else {})
        session.evaluate(few)
        for request in (few, many):
            began = time.perf_counter()
            session.evaluate(request)
            seconds.append(time.perf_counter() - began)
    resources = len(many.resources) / len(few.resources)
    ratio = seconds[1] / seconds[0]
    return f"{resources:.1f} x resources ({len(many.resources)}): {ratio:.1f} x time ({seconds[1]:.2f} s)"


def program() -> list[Registration]:
    """A realistic mix: the platform of a hundred teams, and the clusters and pools of three clouds, several times."""
    objects = objects_of(TEAMS)
    pools = [
        made
        for name in ("prod-aws", "prod-gcp", "prod-azure")
        for made in preview(name).rendered.registrations
        if made.custom and not made.external_id and made.type.partition(":")[0] in {"aws", "gcp", "azure-native"}
    ]
    # Spread over the whole, so that every kind is among them as often as in the whole.
    chosen = [objects[index * len(objects) // (RESOURCES - CLOUDS)] for index in range(RESOURCES - CLOUDS)]
    repeated = [pools[index % len(pools)] for index in range(CLOUDS)]
    return chosen + [
        replace(made, urn=f"{made.urn}-{n}", name=f"{made.name}-{n}", dependencies=(), property_dependencies={})
        for n, made in enumerate(repeated)
    ]


def asked(registrations: Sequence[Registration]) -> AnalyzeStackRequest:
    """What the engine would send, made beforehand: that is the engine's own work."""
    return stack_request(Rendered("gpu-tenancy", "benchmark", tuple(registrations), {}))


def judging(
    folders: Sequence[Path], request: AnalyzeStackRequest, rounds: int, configs: Sequence[Path | None]
) -> list[float]:
    """Seconds of start-up, then of each round: all packs at once, each asked as the engine asks."""
    seconds: list[float] = []
    began = time.perf_counter()
    with ExitStack() as running:
        clients = [running.enter_context(pack_process(folder)) for folder in folders]
        sessions = [
            Session.of(client, read_config(config) if config else {})
            for client, config in zip(clients, configs, strict=True)
        ]
        seconds.append(time.perf_counter() - began)
        with ThreadPoolExecutor(len(sessions)) as threads:
            found: list[PackResult] = []
            for _ in range(rounds):
                began = time.perf_counter()
                found = list(threads.map(partial(Session.evaluate, stack=request), sessions))
                seconds.append(time.perf_counter() - began)
    print(", ".join(f"{result.pack}: {result.rules} rules, {len(result.findings)} findings" for result in found))
    return seconds


def by_the_sdk(at: Path) -> list[Path]:
    """The packs' folders with another program: the same rules, served by the SDK."""
    folders: list[Path] = []
    for name, module in zip(PACKS, ("workload_rules", "cloud_rules"), strict=True):
        folder = at / name
        shutil.copytree(project_folder() / "policy" / name, folder, ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "__main__.py").write_text(_SDK.format(module=module), encoding="utf-8")
        folders.append(folder)
    return folders


def main() -> None:
    """Measures both ways and prints a line for each."""
    registrations = program()
    all_of_them, fewer = asked(registrations), asked(registrations[:: len(registrations) // FEWER])
    own = [project_folder() / "policy" / name for name in PACKS]
    configs = [choose(name, project_folder(), production=True).config for name in PACKS]
    start, *rounds = judging(own, all_of_them, ROUNDS, configs)
    ours = statistics.median(rounds)
    count = len(all_of_them.resources)
    print(f"{count} resources, both packs at once: {ours:.2f} s ({min(rounds):.2f} to {max(rounds):.2f})")
    print(f"start-up of both, one after the other, with configuration: {start:.2f} s")
    print(f"workloads, {growth(own[0], configs[0])}")
    with TemporaryDirectory() as folder:
        _, once = judging(by_the_sdk(Path(folder)), fewer, 1, [None, None])
    scaled = once * count / len(fewer.resources)
    print(
        f"by the SDK: {once:.2f} s for {len(fewer.resources)} resources,"
        f" {scaled:.0f} s for {count}: {scaled / ours:.0f} x"
    )


if __name__ == "__main__":
    main()
