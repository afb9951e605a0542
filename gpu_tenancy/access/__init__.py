"""Who may do what, kubeconfigs, logins."""
