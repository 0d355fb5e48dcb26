"""`python -m rewardctl` and the `rewardctl` command."""

import sys

from rewardctl.cli import main

if __name__ == "__main__":
    sys.exit(main())
