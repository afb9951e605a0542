"""What a simulation of the queues says, for people."""
