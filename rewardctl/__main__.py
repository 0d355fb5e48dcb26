"""`python -m rewardctl` and the `rewardctl` command."""

import sys

from rewardctl.runs.interrupt import CommandSignals, Interrupted


def main() -> int:
    """Run the command line, with signals heeded before anything else is imported."""
    signals = CommandSignals()
    signals.take_over()
    try:
        from rewardctl.cli import main as run

        code = run(signals=signals)
        signals.is_over = True
        return code
    except BaseException:
        if signals.signum is None:
            raise
        stopped = Interrupted(signals.signum)
        print(f"rewardctl: error: {stopped}", file=sys.stderr)
        return stopped.exit_code


if __name__ == "__main__":
    sys.exit(main())
