"""Output of `tenancy whatif`: a simulation of the queues of a stack."""
