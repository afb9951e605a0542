"""Data and pure functions of a stack, without Pulumi, a Kubernetes client, a clock or the network."""
