"""Survey of any running cluster: GPUs that exist and are promised, and contradictions."""
