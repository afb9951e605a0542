"""Questions to a running cluster: what is used, will it fit, why does it wait.

They read the cluster alone, through whatever rights the user has, so that a team leader without the repository can ask
them. `reading` brings the objects; everything else is pure and takes them as they came.
"""
