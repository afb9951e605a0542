"""Where a tenancy may live: one section for each cloud, and one for a cluster that somebody else made."""
