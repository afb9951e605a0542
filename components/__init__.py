"""Component resources: each makes Pulumi resources of one piece of the plan. The plan makes all decisions."""
