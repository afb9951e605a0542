"""A survey of a running cluster, whoever made it: GPUs that exist and are promised, and contradictions."""
