"""A project of a test's own, with stacks that a test writes."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from builders import EXISTING, Data, job, pool, server, team
from repository import ROOT

FIRST_LINE = "# yaml-language-server: $schema=schema.json\n"


def small(**sections: Any) -> Data:
    """Two teams on a node of H100s and one of L4s: the least that has every promise."""
    return {
        "cluster": dict(EXISTING),
        "pools": {"cpu": pool("m7i.8xlarge", 1), "h100": pool(nodes=1), "l4": pool("g6.12xlarge", 1)},
        "priorities": {"high": 1000, "low": {"value": 10, "preempts": False}},
        "teams": {
            "vision": team(
                priority="high",
                gpus={"h100": {"guaranteed": 4}},
                serving={"api": server()},
                training={"nightly": job(gpus=2)},
            ),
            "speech": team(priority="low", gpus={"l4": {"guaranteed": 2}}),
        },
        **sections,
    }


@dataclass(frozen=True)
class Project:
    """This program with other stacks."""

    folder: Path

    @classmethod
    def at(cls, folder: Path) -> "Project":
        (folder / "stacks").mkdir(parents=True)
        for name in ("Pulumi.yaml", "__main__.py"):
            shutil.copy(ROOT / name, folder / name)
        return cls(folder)

    def write(self, stack: str, sections: Data) -> Path:
        """Writes a stack's file, as its author would."""
        config = {f"gpu-tenancy:{key}": value for key, value in sections.items()}
        file = self.folder / "stacks" / f"Pulumi.{stack}.yaml"
        file.write_text(FIRST_LINE + yaml.safe_dump({"config": config}, sort_keys=False), encoding="utf-8")
        return file
