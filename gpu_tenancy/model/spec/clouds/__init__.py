"""Cluster sections: one for each cloud, and one for existing clusters."""
