"""What was played, for other programs."""

import json
from dataclasses import asdict
from typing import Any

from gpu_tenancy.console.whatif.telling import Played
from gpu_tenancy.model.whatif import Moment, holdings, meaning


def as_json(played: Played) -> str:
    """Each moment with its jobs, evictions with their reasons, and what each team has of each flavor."""
    found = {"moments": [_moment(played, each) for each in played.moments], "notModelled": list(played.left_out)}
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"


def _moment(played: Played, moment: Moment) -> dict[str, Any]:
    evicted = [asdict(each) | {"means": meaning(each.reason)} for each in moment.evicted]
    return asdict(moment) | {"evicted": evicted, "teams": [asdict(each) for each in holdings(played.tree, moment)]}
