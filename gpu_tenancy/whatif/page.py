"""A simulated scenario as a self-contained HTML page."""

from gpu_tenancy.base.quantity import CPU, is_extended
from gpu_tenancy.base.texts import available
from gpu_tenancy.pages.templating import FOLD, environment, policy
from gpu_tenancy.whatif.bars import flavor_hues, legend, pictures, shades
from gpu_tenancy.whatif.narrative import Played, headline, job_note, livelock, sentences, tone, turns, waits
from gpu_tenancy.whatif.tables import tables
from gpu_tenancy.whatif.timeline import ABOVE, AREA, FEW, jobs_of, timeline


def _jobs(played: Played) -> str:
    """The jobs of `everyone busy`: of one GPU, of CPUs, or both."""
    cpus = "of one CPU or more with their share of memory"
    if not any(is_extended(measure.resource) for measure in played.counted):
        return cpus if played.counted else "of one GPU"
    with_cpus = any(measure.resource == CPU for measure in played.counted)
    return f"of one GPU, or {cpus}" if with_cpus else "of one GPU"


def page(played: Played) -> str:
    """The whole page: no external resources, no scripts, light and dark; deterministic."""
    teams = dict.fromkeys(held.team for held in played.held if held.flavor in played.labels)
    return (
        environment("gpu_tenancy.whatif")
        .get_template("whatif.html.j2")
        .render(
            played=played,
            environment=played.tree.stack.environment,
            tone=tone(played),
            headline=headline(played),
            sentences=list(sentences(played)),
            pictures=list(pictures(played)),
            legend=legend(shades(played), teams),
            hues=flavor_hues(played),
            time=timeline(played) if played.scenario and played.moments else None,
            turns=list(turns(played.moments)) if played.scenario else [],
            tables=tables(played),
            waits=waits,
            job_note=job_note,
            nouns=available(measure.resource for measure in played.counted),
            jobs=_jobs(played),
            livelock=livelock,
            fold=FOLD,
            many=len(jobs_of(played.moments)) > FOLD,
            few=FEW,
            area=AREA,
            above=ABOVE,
            policy=policy(),
        )
    )
