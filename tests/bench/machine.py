"""What the machine, a process and the server have used so far, as the kernel and the server count it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import psycopg

CORES: Final = os.cpu_count() or 1
TICKS: Final = os.sysconf("SC_CLK_TCK")


def busy_seconds() -> float:
    """Seconds that all cores together have worked since the start of the machine, whoever they worked for."""
    counts = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(counts) - counts[3] - counts[4]) / TICKS  # less idle and waiting for the disk


def process_seconds(pid: int) -> float:
    """Seconds of CPU that a process has used; 0 when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident_mb(pid: int) -> float:
    """Resident memory of a process in MB; 0 when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) * 1024 / 1e6


def wal_bytes(conn: psycopg.Connection[Any]) -> int:
    """How far the server has written its WAL."""
    [(position,)] = conn.execute("select (pg_current_wal_insert_lsn() - '0/0')::bigint").fetchall()
    return int(position)
