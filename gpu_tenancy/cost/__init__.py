"""GPU-hours of a month, and what they cost: guaranteed, used, idle, borrowed, lent and lost."""
