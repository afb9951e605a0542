"""What a reviewer of a stack's change is told: the verdict, what changes, what is promised, what it costs."""
