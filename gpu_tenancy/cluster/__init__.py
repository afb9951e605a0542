"""What is read of a running cluster, with the rights of the user."""
