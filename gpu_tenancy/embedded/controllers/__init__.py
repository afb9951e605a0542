"""Controllers of operators as processes of the embedded platform, as their own Helm charts describe them."""
