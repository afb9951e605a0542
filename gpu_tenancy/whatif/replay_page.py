"""A replay as a self-contained HTML page."""

from gpu_tenancy.pages.templating import FOLD, environment, policy
from gpu_tenancy.whatif import curves
from gpu_tenancy.whatif.replayed import (
    Replayed,
    classes_table,
    headline,
    preemptions_table,
    sentences,
    teams_table,
    time_text,
    tone,
)


def page(replayed: Replayed) -> str:
    """The whole page: no external resources, no scripts, light and dark; deterministic."""
    return (
        environment("gpu_tenancy.whatif")
        .get_template("replay.html.j2")
        .render(
            replayed=replayed,
            tone=tone(replayed),
            headline=headline(replayed),
            sentences=list(sentences(replayed)),
            held=list(curves.held(replayed)),
            waiting=list(curves.waiting(replayed)),
            span=time_text(replayed.outcome.arrivals),
            tables=[teams_table(replayed), classes_table(replayed), preemptions_table(replayed)],
            width=curves.WIDTH,
            height=curves.HEIGHT,
            fold=FOLD,
            policy=policy(),
        )
    )
