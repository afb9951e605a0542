"""Random stacks, reproducible by seed."""

from itertools import islice
from random import Random

from builders import EXISTING, Data, errors, pool, team


def generated(seed: int) -> Data:
    """A random stack with a tree of cohorts."""
    drawn = Random(seed)  # noqa: S311 - it keeps no secret
    even = drawn.random() < 0.25
    groups = ["one", "two", "three"][: drawn.randint(1, 3)]
    cohorts: dict[str, Data] = {"org": {}}
    for index, name in enumerate(groups):
        cohorts[name] = {"parent": "org" if index == 0 or drawn.random() < 0.6 else groups[index - 1]}
        if not even and drawn.random() < 0.7:
            least = drawn.choice([0, 4, 8, 12])
            bound = {"limit": least + drawn.choice([0, 4, 8, 16])} if drawn.random() < 0.7 else {}
            cohorts[name]["gpus"] = {"h100": {"guaranteed": least, **bound}}
    teams: Data = {}
    for number in range(drawn.randint(2, 5)):
        sure = drawn.choice([0, 0, 2, 4, 8])
        most = sure + drawn.choice([0, 2, 4, 8, 16])
        cohort = drawn.choice([*groups, "org"])
        keeps = {"lends": False} if drawn.random() < 0.5 else {}
        weight = {"weight": drawn.choice([1, 2, 3])} if even else {}
        gpus = {"h100": {"guaranteed": sure, "limit": most}}
        teams[f"team-{number}"] = team(cohort=cohort, gpus=gpus, **keeps, **weight)
    if even:
        _bound(drawn, cohorts, teams)
    return {
        "fairness": "even" if even else "hierarchical",
        "cluster": EXISTING,
        "pools": {"cpu": pool("m7i.8xlarge", 2), "h100": pool(nodes=drawn.randint(2, 5))},
        "cohorts": cohorts,
        "teams": teams,
    }


def _bound(drawn: Random, cohorts: dict[str, Data], teams: Data) -> None:
    """Gives some groups a limit or a weight of their own, which make them Cohorts also with even sharing."""

    def guaranteed(name: str) -> int:
        own = [each["gpus"]["h100"]["guaranteed"] for each in teams.values() if each["cohort"] == name]
        return sum(own) + sum(guaranteed(group) for group, spec in cohorts.items() if spec.get("parent") == name)

    for name in [name for name in cohorts if name != "org"]:
        kind = drawn.choice(["none", "limit", "limit", "weight"])
        if kind == "limit":
            least = guaranteed(name)
            cohorts[name]["gpus"] = {"h100": {"guaranteed": least, "limit": least + drawn.choice([0, 2, 4, 8])}}
        elif kind == "weight":
            cohorts[name]["weight"] = drawn.choice([1, 2])


def coherent(count: int) -> list[Data]:
    """The first random stacks that are valid."""
    return list(islice((stack for seed in range(20 * count) if not errors(stack := generated(seed))), count))
