"""Notebooks: options for people of a team, and the CronJob that stops notebooks that are idle or ran too long."""

from collections.abc import Mapping
from pathlib import Path

from pulumi_kubernetes.core.v1 import ConfigMap, Service
from pydantic import TypeAdapter

from gpu_tenancy.model.catalogue.access import Rule
from gpu_tenancy.model.names import NOTEBOOK, NOTEBOOK_PORT, NOTEBOOKS
from gpu_tenancy.model.plan.notebooks import STOPPER, NotebooksOffer
from gpu_tenancy.model.plan.servers import RoutePlan

from . import objects
from .objects import Component, Options, PlatformJob, read_scripts


class NotebookStops(PlatformJob):
    """The CronJob that stops notebooks of all teams, in a namespace of its own.

    It scales a notebook to 0 if it ran for longer than its team's `longest`, or is idle: its pod ran for ten minutes
    and is not ready, by its own probe.
    """

    account = STOPPER
    rules = (
        Rule(groups=("",), resources=("pods",), verbs=("list",), reason="which notebooks are idle, and since when"),
        Rule(groups=("apps",), resources=("statefulsets",), verbs=("get",), reason="kubectl reads what it scales"),
        Rule(groups=("apps",), resources=("statefulsets/scale",), verbs=("patch",), reason="stop them"),
    )
    script = read_scripts("cron_jobs", "stop_notebooks")

    def __init__(self, name: str, environment: str, teams: Mapping[str, int], opts: Options = None) -> None:
        longest = {"TEAMS": " ".join(f"{team}={seconds}" for team, seconds in teams.items())}
        super().__init__(name, environment, longest, opts)


class TeamNotebooks(Component):
    """A team's notebook options and their container files, the right to stop notebooks, and their hosts.

    A host leads to the pods that have the name of its notebook as their label, of which people of the team start one.
    """

    def __init__(
        self, name: str, team: str, offer: NotebooksOffer, routes: Mapping[str, RoutePlan], opts: Options = None
    ) -> None:
        super().__init__("gpu-tenancy:tenancy:TeamNotebooks", name, opts)
        settings = TypeAdapter(NotebooksOffer).dump_json(offer, indent=1, exclude_defaults=True).decode()
        program = Path(__file__).with_name("notebook_server.py").read_text(encoding="utf-8")
        ConfigMap(
            f"{name}-settings",
            metadata={"name": NOTEBOOKS, "namespace": team},
            data={"notebooks.json": settings, "notebook.py": program},
            opts=self.own,
        )
        objects.bind_job(f"{name}-stops", team, STOPPER, self.own)
        for notebook, route in routes.items():
            labels = {NOTEBOOK: notebook}
            service = Service(
                f"{name}-{notebook}-service",
                metadata={"name": notebook, "namespace": team, "labels": labels, "annotations": objects.DO_NOT_AWAIT},
                spec={
                    "type": "ClusterIP",
                    "selector": labels,
                    "ports": [{"name": "http", "port": 80, "target_port": NOTEBOOK_PORT}],
                    # Also an idle one, until it is stopped: its browser may be about to run a cell.
                    "publish_not_ready_addresses": True,
                },
                opts=self.own,
            )
            objects.http_route(f"{name}-{notebook}-route", (team, notebook), labels, route, self.after(service))
