"""State of a running cluster, read with the rights of the user."""
