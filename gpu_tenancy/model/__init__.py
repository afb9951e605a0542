"""What a stack may say, what is known of machines, and what will exist.

Plain data and pure functions: no Pulumi, no Kubernetes client, no clock, no network.
"""
