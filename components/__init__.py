"""Component resources: each turns one piece of the plan into Pulumi resources, and decides nothing."""
