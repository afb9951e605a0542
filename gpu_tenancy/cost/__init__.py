"""GPU-hours of a month and their cost: guaranteed, used, idle, borrowed, lent and lost."""
