"""`python -m gpu_tenancy`: the command `tenancy`, also where the project is not installed."""

from gpu_tenancy.cli.main import main

main()
