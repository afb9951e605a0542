"""`usage`, `fit` and `why`: what a running cluster answers."""
