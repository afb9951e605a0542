"""Jobs and notebooks of people in a running cluster: submit, list, follow, requeue."""
