"""Cases for every rule, a module for each module of rules."""
