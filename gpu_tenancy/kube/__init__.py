"""A Kubernetes client with server-side apply, inventory and pruning."""
