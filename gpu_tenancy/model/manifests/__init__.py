"""Objects of workloads as the API server takes them: pure functions of a plan, for stacks and for `tenancy submit`."""
