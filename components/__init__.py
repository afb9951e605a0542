"""Component resources: each turns one piece of the plan into Pulumi resources. The plan makes all decisions."""
