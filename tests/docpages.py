"""Runs a page of the documentation: its blocks, top to bottom, against one database and in one directory.

How a block is read:
- ```console: lines after `mdm=#` (or `mdm=>`) go to psql, one session a page; lines after `$` go to bash. What stands
  below a command is its output and has to come out; a command without output below it only has to succeed.
- ```sql goes to the same psql session. ```python is run as a program, or, when its first line is `# name.py`, saved
  under that name for what follows. ```text after ```python is what the program prints.
- Everything else is not run.

Two outputs are equal when they are after `normalised`: what differs from run to run (times, uuids, lease numbers,
seconds) and the width of columns is evened out. A line `...` stands for any lines, `...` within a line for any words.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cluster import ROOT

FENCE: Final = re.compile(r"^```(\S*)\s*$")
PSQL_PROMPT: Final = re.compile(r"^mdm[=\-('\"*]+[#>] ?(.*)$")
SHELL_PROMPT: Final = re.compile(r"^\$ (.*)$")
FILE_NAME: Final = re.compile(r"^# (\w+\.py)$")
END: Final = "-- end of output --"
SECONDS: Final = 120

# Commands about the checkout or the machine: bin/ is tested by itself, the rest is another program's.
NOT_RUN: Final = re.compile(
    r"^([A-Z_]+=\S+ )*(bin/|\.ci/|git |cd |pip |python3? -m (venv|pip)|createdb |sudo |systemctl |export |kill )"
)

VARYING: Final = (
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?([+-]\d\d(:?\d\d)?|Z)?"), "<time>"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "<uuid>"),
    (re.compile(r"\b\d\d:\d\d:\d\d(\.\d+)?\b"), "<interval>"),
    (re.compile(r"\b\d{12,17}\b"), "<lease>"),
    (re.compile(r"\b\d+(\.\d+)? ?(s|seconds|ms)\b"), "<seconds>"),
    (re.compile(r"\b[\w.-]+/\d+/(<uuid>|\d+)"), "<worker>"),
    (re.compile(r"-{3,}"), "---"),
    (re.compile(r"\s+"), " "),
)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page."""

    language: str
    line: int
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.lines)


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a console block and the output that the page shows for it."""

    tool: str  # psql or bash
    text: str
    line: int
    output: tuple[str, ...]


def pages() -> list[Path]:
    """Every page that a reader may open."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(path: Path) -> list[Block]:
    """Return the fenced blocks of a page; an open fence at its end is an error."""
    found = []
    language: str | None = None
    start = 0
    body: list[str] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        fence = FENCE.match(line)
        if language is None and fence:
            language, start, body = fence[1], number + 1, []
        elif language is not None and fence and not fence[1]:
            found.append(Block(language, start, tuple(body)))
            language = None
        elif language is not None:
            body.append(line)
    assert language is None, f"{path}:{start}: the block has no end"
    return found


def commands(block: Block) -> Iterator[Command]:
    """Split a console block into its commands, each with the lines of output below it."""
    tool, text, line = "", "", 0
    output: list[str] = []
    for number, row in enumerate(block.lines, block.line):
        psql, shell = PSQL_PROMPT.match(row), SHELL_PROMPT.match(row)
        if psql and not row.startswith("mdm="):
            text += "\n" + psql[1]
        elif tool == "bash" and text.endswith("\\") and not output:
            text += "\n" + row
        elif psql or shell:
            if tool:
                yield Command(tool, text, line, tuple(output))
            tool, line, output = ("psql" if psql else "bash"), number, []
            text = psql[1] if psql else shell[1] if shell else ""
        else:
            output.append(row)
    if tool:
        yield Command(tool, text, line, tuple(output))


def normalised(lines: tuple[str, ...]) -> list[str]:
    """Return the lines without what varies, without empty ones."""
    result = []
    for line in lines:
        for pattern, name in VARYING:
            line = pattern.sub(name, line)
        result.append(line.strip())
    return [line for line in result if line]


def matches(shown: list[str], real: list[str]) -> bool:
    """Compare normalised outputs; `...` in the page stands for any lines, within a line for any words."""
    pattern = "".join(
        r"(?:.*\n)*" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*") + r"\n" for line in shown
    )
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in real)) is not None


class Psql:
    """One psql session that answers command by command."""

    def __init__(self, environ: Mapping[str, str], cwd: Path) -> None:
        # as on a terminal: errors without file and line, in the order of the rest
        self._process = subprocess.Popen(
            ["psql", "-X", "-v", "SHOW_CONTEXT=never"],
            env=dict(environ),
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
        )

    def run(self, text: str) -> tuple[str, ...]:
        """Send a command, return the lines that it prints; a command that hangs ends the session."""
        assert self._process.stdin
        assert self._process.stdout
        limit = threading.Timer(SECONDS, self._process.kill)
        limit.start()
        try:
            self._process.stdin.write(f"{text}\n\\echo {END}\n")
            self._process.stdin.flush()
            output: list[str] = []
            for line in self._process.stdout:
                if line.rstrip("\n").endswith(END):
                    return tuple(output)
                output.append(line.rstrip("\n"))
        finally:
            limit.cancel()
        raise AssertionError(f"psql ended at: {text}\n" + "\n".join(output))

    def close(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait(SECONDS)
        self._process.stdout.close()


class Session:
    """Runs the blocks of one page."""

    def __init__(self, environ: Mapping[str, str], cwd: Path) -> None:
        self._environ = environ
        self._cwd = cwd
        self._printed: tuple[str, ...] = ()
        self.psql = Psql(environ, cwd)

    def run(self, block: Block) -> None:
        match block.language:
            case "console":
                for command in commands(block):
                    self._command(command)
            case "sql":
                self._check(block.line, block.text, self.psql.run(block.text), ())
            case "python" if block.lines and (name := FILE_NAME.match(block.lines[0])):
                (self._cwd / name[1]).write_text(block.text, encoding="utf-8")
            case "python":
                self._printed = self._program([sys.executable, "-"], block.text, block.line)
            case "text" if self._printed:
                self._check(block.line, "the program above", self._printed, block.lines)
                self._printed = ()

    def _command(self, command: Command) -> None:
        if command.tool == "psql":
            real = self.psql.run(command.text)
        elif NOT_RUN.match(command.text):
            program = next(word for word in command.text.split() if "=" not in word)
            assert not program.startswith("bin/") or os.access(ROOT / program, os.X_OK), (
                f"line {command.line}: {program}"
            )
            return
        else:
            expect_failure = any(line.startswith(("error:", "Error:", "jobrunner:")) for line in command.output)
            real = self._program(["bash", "-c", command.text], None, command.line, check=not expect_failure)
        self._check(command.line, command.text, real, command.output)

    def _program(self, argv: list[str], text: str | None, line: int, check: bool = True) -> tuple[str, ...]:
        done = subprocess.run(
            argv,
            input=text or "",
            env=dict(self._environ),
            cwd=self._cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            timeout=SECONDS,
        )
        assert done.returncode == 0 or not check, f"line {line} ended with {done.returncode}:\n{done.stdout}"
        return tuple(done.stdout.splitlines())

    def _check(self, line: int, text: str, real: tuple[str, ...], shown: tuple[str, ...]) -> None:
        wanted = normalised(shown)
        if not wanted:
            errors = [row for row in real if row.startswith(("ERROR:", "FATAL:", "invalid command"))]
            assert not errors, f"line {line}: {text}\n" + "\n".join(real)
            return
        got = normalised(real)
        assert matches(wanted, got), (
            f"line {line}: {text}\n-- the page shows\n" + "\n".join(shown) + "\n-- it prints\n" + "\n".join(real)
        )


def environment(dsn: Mapping[str, str], url: str, psql_dir: Path) -> dict[str, str]:
    """Return the environment of a page: the database in JOBRUNNER_DSN and PG*, our programs and psql on the path."""
    keep = {name: os.environ[name] for name in ("HOME", "TMPDIR") if name in os.environ}
    return {
        **keep,
        "PATH": f"{Path(sys.executable).parent}:{psql_dir}:/usr/local/bin:/usr/bin:/bin",
        "LC_ALL": "C.UTF-8",
        "TERM": "dumb",
        "JOBRUNNER_DSN": url,
        "PGHOST": dsn["host"],
        "PGPORT": dsn["port"],
        "PGUSER": dsn["user"],
        "PGDATABASE": dsn["dbname"],
    }
