"""`tenancy doctor`: checks before a deployment that the tools and, read-only, the cloud have what a stack needs."""
