"""bin/bench: runs scenarios one after the other on a durable server of its own and prints what was measured."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from kit import durable_server
from scenarios import SCENARIOS


def main(arguments: list[str] | None = None) -> int:
    """Run the scenarios named, or all."""
    parser = argparse.ArgumentParser(
        prog="bin/bench",
        description="Measures on a throw-away server with durable commits. Figures compare within one run only.",
    )
    parser.add_argument(
        "scenarios", nargs="*", metavar="scenario", help=f"one or more of: {', '.join(SCENARIOS)} (default: all)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="small and short, to see that it works; the figures mean little"
    )
    options = parser.parse_args(arguments)
    unknown = [name for name in options.scenarios if name not in SCENARIOS]
    if unknown:
        parser.error(f"unknown scenario {', '.join(unknown)}: choose from {', '.join(SCENARIOS)}")
    with durable_server(options.quick) as bench:
        if not (bench.server.bin / "pgbench").exists():
            parser.error(
                f"{bench.server.bin} has no pgbench: set JOBRUNNER_PG_BIN to one that has (Debian: postgresql-15)"
            )
        for name in options.scenarios or SCENARIOS:
            SCENARIOS[name](bench)
    return 0


if __name__ == "__main__":
    sys.exit(main())
