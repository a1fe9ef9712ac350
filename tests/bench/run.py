"""bin/bench: runs scenarios one after the other on a durable server of its own and prints what was measured."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from kit import Options, durable_server
from queues import PEERS, installed, interpreter
from scenarios import SCENARIOS

from leftovers import begin_run


def main(arguments: list[str] | None = None) -> int:
    """Run the scenarios named, or all."""
    parser = argparse.ArgumentParser(
        prog="bin/bench",
        description="Measures on a throw-away server with durable commits. Figures compare within one run only.",
        epilog="What each scenario measures, and how to install the peers: docs/how-to/measure.md.",
    )
    parser.add_argument(
        "scenarios", nargs="*", metavar="scenario", help=f"one or more of: {', '.join(SCENARIOS)} (default: all)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="small and short, to see that it works; the figures mean little"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object a line for each figure")
    parser.add_argument(
        "--peers", action="store_true", help="run the installed peers too: drain, pickup, steady, held-snapshot"
    )
    parser.add_argument("--large", action="store_true", help="scale: also beside 10,000,000 done rows")
    parser.add_argument("--minutes", type=float, help="length of steady and held-snapshot (default: 1 and 2)")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.scenarios if name not in SCENARIOS]
    if unknown:
        parser.error(f"unknown scenario {', '.join(unknown)}: choose from {', '.join(SCENARIOS)}")
    if options.minutes is not None and options.minutes <= 0:
        parser.error("--minutes must be more than 0")
    if options.peers:
        _name_the_missing()
    begin_run()
    asked = Options(options.quick, options.json, options.peers, options.large, options.minutes)
    with durable_server(asked) as bench:
        if not (bench.server.bin / "pgbench").exists():
            parser.error(
                f"{bench.server.bin} has no pgbench: set JOBRUNNER_PG_BIN to one that has (Debian: postgresql-15)"
            )
        for name in options.scenarios or SCENARIOS:
            SCENARIOS[name](bench)
    return 0


def _name_the_missing() -> None:
    """Say which peers are left out."""
    for peer in PEERS:
        if not installed(peer):
            where = f"{peer.variable} or NODE_PATH" if peer.driver.endswith(".cjs") else peer.variable
            print(f"bench: {peer.name} is left out: {interpreter(peer)} has none ({where})", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
