"""Jobs on a stack's queues as deployed, without GPUs reserved for Volcano: load, scenarios, and recorded jobs."""
