"""The embedded platform: a real control plane on one machine, for trying a stack and for the tests."""
