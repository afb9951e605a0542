"""Runs the program without Pulumi's engine and keeps what it registers."""
