"""`pulumi up` of one environment, in one Pulumi stack or several."""
