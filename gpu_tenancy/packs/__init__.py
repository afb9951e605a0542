"""Evaluates policy packs as Pulumi's engine does."""
