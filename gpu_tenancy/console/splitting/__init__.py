"""Environments that are divided into several Pulumi stacks: their deployment, and the moves of their states."""
