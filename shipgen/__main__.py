"""The console script, and `python -m shipgen`."""

from __future__ import annotations


def run() -> None:
    """Run the command line. A command is short-lived: collecting garbage would only cost a tenth of its start."""
    import gc

    gc.disable()
    from shipgen.cli import main

    main(prog_name="shipgen")


if __name__ == "__main__":
    run()
