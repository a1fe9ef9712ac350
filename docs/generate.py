"""Generates docs/reference/ from what runs: the catalogue of an installed database, errors.py, the command line.

`bin/docs` writes the pages, `bin/docs --check` only says which are out of date (exit code 1).
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args, get_type_hints

import psycopg
import typer

from jobrunner import cli, devserver, errors, schema

REFERENCE: Final = Path(__file__).resolve().parent / "reference"
Connection = psycopg.Connection[Any]

HEAD: Final = "<!-- Made by bin/docs: change the source, not this page. -->\n"
SQLSTATE: Final = re.compile(r"'(MJ00[1-9])'")
CALL: Final = re.compile(r"\bmdm\.(\w+)\s*\(")
MENTIONED: Final = re.compile(r"\bMJ00[1-9]\b")
NOT_CODE: Final = re.compile(r"--[^\n]*|'[^']*'")
# Heading, roles that make a function belong to it (the first that fits), what it is about.
AUDIENCES: Final = (
    ("For producers", {"mdm_producer"}, "Put jobs in and look after them."),
    ("For workers", {"mdm_worker"}, "Claim, run and end jobs; upkeep."),
    ("For administrators", {"mdm_admin"}, "Decide about single jobs and about kinds (S9, D12), look at the whole."),
    ("For everybody", {"PUBLIC"}, "Rights on nothing are needed."),
)
# What a caller makes of each SQLSTATE; the keys are the constants of errors.py.
MEANINGS: Final[Mapping[str, tuple[str, str]]] = {
    "LEASE_LOST": (
        "The job does not run under this lease any more. The detail says what became of it: `already ended by this "
        "lease`, `stopped`, `recovered`, `claimed again` or `gone`.",
        "Let the transaction abort and drop the job: somebody else does its work. After a lost answer to a commit, "
        "`already ended by this lease` means that the commit went through.",
    ),
    "NO_SUCH_JOB": (
        "There is no job with this id.",
        "Look for its id in `mdm.aa_audit_log.object_id`: it was discarded or purged, or never existed.",
    ),
    "UNKNOWN_KIND": (
        "The job kind is not registered, or it is disabled.",
        "Correct the name, or register it with `mdm.set_job_kind`.",
    ),
    "WRONG_STATE": (
        "The job's state does not allow this act, or a newer job of its key supersedes it.",
        "Look at its state with `mdm.get_job`; the hint says what comes first.",
    ),
    "BAD_ARGUMENT": ("An argument or a payload is not acceptable.", "Correct it; the message names it."),
    "REFUSED": (
        "The call is too dangerous as it stands, for instance a bulk call with an empty filter.",
        'Say what you mean: a filter, or `{"all": true}`.',
    ),
    "NOT_ALLOWED": (
        "The login may not do this, or the server lacks what it takes. A missing right on a function is PostgreSQL's "
        "own `42501`.",
        "Do what the hint says: another login, a grant, an extension.",
    ),
}


class Function(NamedTuple):
    """A function or procedure of schema mdm, as the catalogue has it."""

    name: str
    kind: str  # f or p
    arguments: str
    result: str | None
    comment: str
    source: str
    roles: list[str]


def functions(conn: Connection) -> list[Function]:
    """Return all functions of the job system, private ones included."""
    rows = conn.execute(
        """
        select p.proname, p.prokind::text, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid),
          coalesce(obj_description(p.oid, 'pg_proc'), ''), p.prosrc,
          array(
            select case when a.grantee = 0 then 'PUBLIC' else a.grantee::regrole::text end
            from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
            where a.privilege_type = 'EXECUTE' and a.grantee <> p.proowner
            order by 1)
        from pg_proc p
        where p.pronamespace = 'mdm'::regnamespace
        order by p.proname
        """
    )
    return [Function(*row) for row in rows]


def raised(every: Sequence[Function]) -> dict[str, set[str]]:
    """Return for each function the SQLSTATEs that it raises itself or through private functions that it calls."""
    result = {f.name: set(SQLSTATE.findall(f.source)) for f in every}
    calls = {f.name: {name for name in _calls(f.source) if name in result and name.startswith("_")} for f in every}
    changed = True
    while changed:
        changed = False
        for name, callees in calls.items():
            more = set().union(*(result[callee] for callee in callees)) - result[name]
            result[name] |= more
            changed = changed or bool(more)
    return result


def told(every: Sequence[Function]) -> dict[str, set[str]]:
    """Return for each function the SQLSTATEs that it raises, or whose comment says that it may."""
    return {
        f.name: codes | set(MENTIONED.findall(f.comment))
        for f, codes in zip(every, raised(every).values(), strict=True)
    }


def _calls(source: str) -> set[str]:
    """Return the functions of mdm that a body calls; what a "when others" catches does not get out."""
    return set() if "when others" in source else set(CALL.findall(NOT_CODE.sub("", source)))


# -- functions.md


def functions_page(conn: Connection) -> str:
    """Render the public functions, by who may call them."""
    every = functions(conn)
    codes = told(every)
    public = [f for f in every if not f.name.startswith("_")]
    parts = [
        HEAD,
        "# Functions\n",
        "Everything that a program may call, in schema `mdm`. Optional parameters come last; NULL means their default "
        "(D13). Use named notation: parameters are never renamed, new ones may come.\n",
        "What may go wrong is listed in [SQLSTATEs](sqlstates.md), the tables behind it in [Tables](tables.md).\n",
    ]
    left = [f for f in public if f.result != "trigger"]
    for heading, roles, about in AUDIENCES:
        here = [f for f in left if roles & set(f.roles)]
        left = [f for f in left if f not in here]
        parts += [f"## {heading}\n", f"{about}\n", *(_function(f, codes[f.name]) for f in here)]
    if left:
        parts += ["## For their owner alone\n", *(_function(f, codes[f.name]) for f in left)]
    triggers = [f for f in public if f.result == "trigger"]
    if triggers:
        parts += ["## Trigger functions\n", *(_function(f, codes[f.name]) for f in triggers)]
    return "\n".join(parts)


def _function(f: Function, codes: set[str]) -> str:
    arguments = _cut_types(f.arguments).replace(", p_", ",\n  p_")
    arguments = f"\n  {arguments}" if "\n" in arguments else arguments
    result = f" returns {_lower_table(f.result)}" if f.kind == "f" and f.result else ""
    verb = "call" if f.kind == "p" else "function"
    lines = [
        f"### {f.name}\n",
        "```text",
        f"{verb} mdm.{f.name}({arguments}){result}",
        "```\n",
        f"{_prose(f.comment)}\n",
    ]
    if codes:
        states = ", ".join(f"[{code}](sqlstates.md#{code.lower()})" for code in sorted(codes))
        lines.append(f"May raise: {states}.\n")
    lines.append(f"May be called by: {', '.join(f'`{role}`' for role in f.roles) or 'its owner'}.\n")
    return "\n".join(lines)


def _cut_types(arguments: str) -> str:
    """Write defaults as a person would: default '{}' instead of DEFAULT '{}'::jsonb."""
    text = re.sub(r"DEFAULT NULL::[\w ]+(\[\])?", "default null", arguments)
    text = re.sub(r"DEFAULT ('[^']*')::[\w ]+", r"default \1", text)
    text = text.replace("DEFAULT ", "default ").replace("timestamp with time zone", "timestamptz")
    return re.sub(r"^IN |(?<=, )IN ", "", text).replace("double precision", "float8")


def _lower_table(result: str) -> str:
    text = result.replace("TABLE(", "table (").replace("SETOF ", "setof ")
    return text.replace("timestamp with time zone", "timestamptz").replace("double precision", "float8")


# -- tables.md


def tables_page(conn: Connection) -> str:
    """Render the tables, views and enums."""
    parts = [
        HEAD,
        "# Tables, views and types\n",
        "Nobody but their owner has rights on the tables: programs use the [functions](functions.md), people the "
        "views.\n",
        "## Tables of the job system\n",
        *_relations(conn, "mdm_owner", ("r", "p")),
        "## Views\n",
        *_relations(conn, "mdm_owner", ("v",)),
        "## Tables of the platform\n",
        "Where the platform has these tables they are used as they are; on an empty database small stand-ins are "
        "made (D20). The stand-ins have these columns.\n",
        *_relations(conn, "mdm_platform", ("r", "p")),
        "## Enums\n",
        *_enums(conn),
    ]
    return "\n".join(parts)


def _relations(conn: Connection, owner: str, kinds: tuple[str, ...]) -> Iterable[str]:
    rows = conn.execute(
        """
        select c.oid, c.relname, coalesce(obj_description(c.oid, 'pg_class'), ''), c.relkind = 'v', c.relpersistence
        from pg_class c
        where c.relnamespace = 'mdm'::regnamespace and c.relkind = any(%s::"char"[])
          and c.relowner = %s::regrole and c.relname not like '%%yoyo%%'
        order by c.relname
        """,
        (list(kinds), owner),
    ).fetchall()
    for oid, name, comment, is_view, persistence in rows:
        unlogged = " Unlogged: empty after a crash of the server." if persistence == "u" else ""
        yield f"### {name}\n\n{_prose(comment)}{unlogged}\n"
        yield _columns(conn, oid, is_view)
        if not is_view:
            yield from _rules(conn, oid)


def _columns(conn: Connection, oid: int, is_view: bool) -> str:
    rows = conn.execute(
        """
        select a.attname, format_type(a.atttypid, a.atttypmod), not a.attnotnull,
          case when a.attidentity <> '' then 'identity' else coalesce(pg_get_expr(d.adbin, d.adrelid), '') end,
          coalesce(col_description(a.attrelid, a.attnum), '')
        from pg_attribute a
        left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
        where a.attrelid = %s and a.attnum > 0 and not a.attisdropped
        order by a.attnum
        """,
        (oid,),
    ).fetchall()
    lines = ["| column | type |" + ("" if is_view else " null | default |") + " meaning |"]
    lines.append("| --- | --- |" + ("" if is_view else " --- | --- |") + " --- |")
    for name, kind, nullable, default, comment in rows:
        middle = "" if is_view else f" {'yes' if nullable else 'no'} | {_code(_default(default))} |"
        lines.append(f"| `{name}` | {_type(kind)} |{middle} {_cell(comment)} |")
    return "\n".join([*lines, ""])


def _rules(conn: Connection, oid: int) -> Iterable[str]:
    checks = conn.execute(
        """
        select c.conname, pg_get_constraintdef(c.oid)
        from pg_constraint c
        where c.conrelid = %s and c.contype in ('c', 'f', 'p', 'u')
        order by array_position(array['p', 'u', 'f', 'c'], c.contype::text), c.conname
        """,
        (oid,),
    ).fetchall()
    indexes = conn.execute(
        """
        select i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid),
          coalesce(obj_description(i.indexrelid, 'pg_class'), '')
        from pg_index i
        where i.indrelid = %s and not exists (select from pg_constraint c where c.conindid = i.indexrelid)
        order by 1
        """,
        (oid,),
    ).fetchall()
    if checks:
        yield "Rules:\n\n" + "\n".join(f"- `{name}`: `{_rule(text)}`" for name, text in checks) + "\n"
    if indexes:
        rows = (
            f"- `{name.removeprefix('mdm.')}`: `{_index(text)}`{': ' + _prose(comment) if comment else ''}"
            for name, text, comment in indexes
        )
        yield "Indexes:\n\n" + "\n".join(rows) + "\n"


def _enums(conn: Connection) -> Iterable[str]:
    rows = conn.execute(
        """
        select t.typname, string_agg(e.enumlabel, ', ' order by e.enumsortorder),
          coalesce(obj_description(t.oid, 'pg_type'), '')
        from pg_type t
        join pg_enum e on e.enumtypid = t.oid
        where t.typnamespace = 'mdm'::regnamespace
        group by t.oid, t.typname
        order by t.typname
        """
    )
    for name, labels, comment in rows:
        yield f"### {name}\n\n{comment}\n\nValues: {', '.join(f'`{label}`' for label in labels.split(', '))}.\n"


def _type(text: str) -> str:
    return text.replace("timestamp with time zone", "timestamptz").replace("double precision", "float8")


def _default(text: str) -> str:
    return re.sub(r"'::[\w. ]+(\[\])?$", "'", text)


def _rule(text: str) -> str:
    return text.replace("|", "\\|")


def _index(text: str) -> str:
    return re.sub(r"^CREATE (UNIQUE )?INDEX \w+ ON (ONLY )?\S+ USING ", lambda m: "unique " if m[1] else "", text)


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _prose(text: str) -> str:
    """Keep markdown from reading <host> as a tag and two stars as emphasis."""
    return text.replace("<", "&lt;").replace("*", "\\*")


def _cell(text: str) -> str:
    return _prose(text).replace("|", "\\|").replace("\n", " ")


# -- sqlstates.md


def sqlstates() -> dict[str, str]:
    """Return the constants of errors.py that are SQLSTATEs: name -> code."""
    found = {name: value for name, value in vars(errors).items() if re.fullmatch(r"MJ\d{3}", str(value))}
    return dict(sorted(found.items(), key=lambda item: item[1]))


def sqlstates_page(conn: Connection) -> str:
    """Render the SQLSTATEs with what to do and which functions raise them."""
    codes = told(functions(conn))
    parts = [
        HEAD,
        "# SQLSTATEs\n",
        "Every error that a function of schema `mdm` raises itself has one of these codes, a message, and a hint that "
        "names the remedy. In psql `\\echo :SQLSTATE` shows the code of the last error; psycopg has it in "
        "`error.sqlstate` (the class is plain `DatabaseError`), pg8000 in `error.args[0]['C']`.\n",
        "Other codes are PostgreSQL's own: `42501` a missing right, `40001` a conflict under REPEATABLE READ, `22P05` "
        "a NUL in JSON, `55P03` a lock that did not come in time.\n",
    ]
    for name, code in sqlstates().items():
        meaning, remedy = MEANINGS[name]
        by = [f"[`{f}`](functions.md#{f})" for f, found in sorted(codes.items()) if code in found and f[0] != "_"]
        parts += [f"## {code}\n", f"`errors.{name}`. {meaning}\n", f"What to do: {remedy}\n"]
        parts += [f"Raised by: {', '.join(by)}.\n"] if by else []
    return "\n".join(parts)


# -- exit-codes.md


def exit_codes() -> dict[int, list[str]]:
    """Return what each exit code of `jobrunner` means, from the exceptions of errors.py."""
    found: dict[int, list[str]] = {}
    for value in vars(errors).values():
        if isinstance(value, type) and issubclass(value, errors.JobrunnerError):
            text = (value.__doc__ or "").split("\n")[0]
            found.setdefault(value.exit_code, []).append("Any other error." if value is errors.JobrunnerError else text)
    return dict(sorted(found.items()))


def exit_codes_page() -> str:
    """Render the exit codes."""
    rows = [
        "| code | meaning |",
        "| --- | --- |",
        "| 0 | All went well. For the pool: it was told to stop, or is done. |",
    ]
    rows += [f"| {code} | {' '.join(texts)} |" for code, texts in exit_codes().items()]
    return "\n".join(
        [
            HEAD,
            "# Exit codes\n",
            "What `jobrunner` ends with. Every code but 0 comes with one line on stderr that names the remedy.\n",
            *rows,
            "",
        ]
    )


# -- cli.md


def cli_page() -> str:
    """Render the command line from the help texts of its commands."""
    root = typer.main.get_command(cli.app)
    parts = [
        HEAD,
        "# Command line\n",
        "The same texts as `jobrunner --help` and `jobrunner COMMAND --help`. What it ends with: "
        "[exit codes](exit-codes.md).\n",
        *_command("jobrunner", root),
    ]
    for name, command in sorted(_commands("jobrunner", root)):
        parts += _command(name, command)
    return "\n".join(parts)


def _commands(name: str, group: Any) -> Iterator[tuple[str, Any]]:
    """The subcommands of a command, and theirs."""
    for word, command in getattr(group, "commands", {}).items():
        if not command.hidden:
            yield f"{name} {word}", command
            yield from _commands(f"{name} {word}", command)


def _command(name: str, command: Any) -> list[str]:
    context = command.make_context(name, [], resilient_parsing=True)
    usage = re.sub(r"\{(\w+)\}", lambda name: name[1].upper(), " ".join(command.collect_usage_pieces(context)))
    parts = [f"## {name}\n", "```text", f"{name} {usage}", "```\n", f"{(command.help or '').strip()}\n"]
    hints = get_type_hints(command.callback) if command.callback else {}
    rows = [_parameter(parameter, hints.get(parameter.name)) for parameter in command.get_params(context)]
    rows = [row for row in rows if row]
    if rows:
        parts += ["| option | default | meaning |", "| --- | --- | --- |", *rows, ""]
    return parts


def _parameter(parameter: Any, hint: Any) -> str:
    if getattr(parameter, "hidden", False):
        return ""
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    if parameter.param_type_name == "argument":
        names = f"`{(parameter.metavar or parameter.name).upper()}`"
    for kind in (hint, *get_args(hint)):
        if isinstance(kind, type) and issubclass(kind, Enum):
            names += " " + ", ".join(f"`{member.value}`" for member in kind)
    default = getattr(parameter.default, "value", parameter.default)
    shown = "" if default in (None, False, ()) or callable(default) else f"`{default}`"
    meaning = getattr(parameter, "help", None) or ""
    variable = f" Environment: `{parameter.envvar}`." if parameter.envvar else ""
    return f"| {names} | {shown} | {_cell(meaning)}{variable} |"


# -- all of it


def render(conn: Connection) -> dict[Path, str]:
    """Return every generated page: path -> text. `conn` is a superuser's or mdm_owner's, on an installed database."""
    return {
        REFERENCE / "functions.md": functions_page(conn),
        REFERENCE / "tables.md": tables_page(conn),
        REFERENCE / "sqlstates.md": sqlstates_page(conn),
        REFERENCE / "exit-codes.md": exit_codes_page(),
        REFERENCE / "cli.md": cli_page(),
    }


def outdated(texts: Mapping[Path, str]) -> list[Path]:
    """Return the pages whose file says something else."""
    return [path for path, text in texts.items() if not path.exists() or path.read_text(encoding="utf-8") != text]


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of bin/docs."""
    parser = argparse.ArgumentParser(prog="bin/docs", description="Writes docs/reference/ from what runs.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit code 1 when a page is out of date")
    arguments = parser.parse_args(argv)
    base = Path(tempfile.mkdtemp(prefix="mdm-"))
    server = devserver.start(base, options={"fsync": "off"})
    try:
        schema.migrate(server.dsn())
        with psycopg.connect(server.dsn()) as conn:
            texts = render(conn)
    finally:
        devserver.stop(server)
        shutil.rmtree(base)
    stale = outdated(texts)
    for path in stale:
        print(f"docs/reference/{path.name}: {'out of date, run bin/docs' if arguments.check else 'written'}")
        if not arguments.check:
            path.write_text(texts[path], encoding="utf-8")
    return 1 if stale and arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
