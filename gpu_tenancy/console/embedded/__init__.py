"""The embedded platform: a real control plane on one machine, to try a stack and for tests."""
