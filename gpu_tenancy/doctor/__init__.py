"""`tenancy cluster doctor`: checks that tools and, read-only, the cloud have what a stack needs."""
