"""`usage`, `fit` and `why`: answers about a running cluster, and what a change would do to its workloads."""
