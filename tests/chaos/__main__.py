"""Kills, freezes and cuts off what can die, and checks that nothing is lost; exit code 1 when a promise broke."""

from __future__ import annotations

import argparse
import sys
from time import monotonic

from chaos import beats, disk, failover, returns, silent, storm, windows, zombies
from chaos.world import world
from leftovers import begin_run

CHAPTERS = {
    "windows": windows.run,
    "zombies": zombies.run,
    "beats": beats.run,
    "silent": silent.run,
    "returns": returns.run,
    "disk": disk.run,
    "failover": failover.run,
    "storm": storm.run,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="bin/chaos", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="about a minute instead of ten")
    parser.add_argument("chapter", nargs="*", choices=[*CHAPTERS, []], help="default: all")
    options = parser.parse_args()
    begin_run()
    began = monotonic()
    with world(options.quick) as here:
        for name in options.chapter or CHAPTERS:
            from_here = monotonic()
            print(f"\n== {name}", flush=True)
            with here.connect() as conn:
                CHAPTERS[name](here, conn)
            print(f"({monotonic() - from_here:.0f} s)", flush=True)
        faults = here.faults
    print(f"\n{'NOTHING LOST' if not faults else 'BROKEN PROMISES'} after {monotonic() - began:.0f} s")
    for fault in faults:
        print(f"  {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
