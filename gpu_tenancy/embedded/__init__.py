"""The embedded platform: a control plane on this machine, the stack deployed to it, and checks of its guarantees."""
