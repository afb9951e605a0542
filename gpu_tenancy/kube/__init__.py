"""A client of clusters: server-side apply, inventory, pruning."""
