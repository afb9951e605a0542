"""`tenancy ui`: a page on the loopback about queues and jobs of a cluster, with the rights of the user."""
