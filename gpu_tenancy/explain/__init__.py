"""Results of `usage`, `fit` and `why` for a running cluster, and effects of a change on its workloads."""
