"""A slot against the real server: how each way of a handler to end is told to the database."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from jobrunner import keeper, remainder
from jobrunner.db.call import Call
from jobrunner.errors import PermanentError, RetryLater, Snooze
from jobrunner.job import Context, Job
from jobrunner.shared import Mode
from jobrunner.sizing import Sizing
from jobs import (
    Connection,
    actions,
    age,
    call,
    claim,
    claim_one,
    enqueue,
    job,
    make_due,
    make_kind,
    make_tenant,
    recover,
    status,
    statuses,
    value,
    violations,
)
from runnerkit import drain, eventually, serving

KIND = "tried"
MARK = "update mdm.aa_tenant set name = %s where id = %s"


@pytest.fixture(autouse=True)
def kind(conn: Connection) -> str:
    return make_kind(conn, KIND, base_delay="1 hour", max_delay="6 hours", max_attempts=3, stale_ttl="15 minutes")


def name_of(conn: Connection, tenant: Any) -> str:
    return str(value(conn, "select name from mdm.aa_tenant where id = %s", tenant))


def test_slot_finishes_quick_jobs_together(conn: Connection, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sizing, "limit", lambda sizing: 20)  # what quick runs lead to on an idle machine
    for _ in range(60):
        enqueue(conn, KIND)
    seen: list[Job] = []
    tally = drain(dsn, {KIND: lambda job, ctx: seen.append(job)})
    assert (tally.done, len(seen), len({job.id for job in seen})) == (60, 60, 60)
    assert statuses(conn) == {"done": 60}
    transactions = value(conn, "select count(distinct xmin::text) from mdm.aa_job")
    assert transactions < 10, "they were finished one by one"
    assert violations(conn) == {}


def test_slot_works_in_the_order_of_priority(conn: Connection, dsn: str) -> None:
    ids = {priority: enqueue(conn, KIND, priority=priority) for priority in (300, -7, 100)}
    seen: list[int] = []
    drain(dsn, {KIND: lambda job, ctx: seen.append(job.id)})
    assert seen == [ids[-7], ids[100], ids[300]]


def test_slot_commits_the_writes_of_a_handler_with_its_status(conn: Connection, dsn: str) -> None:
    tenant, job_id = make_tenant(conn), enqueue(conn, KIND)
    states: list[str] = []

    def handler(job: Job, ctx: Context) -> None:
        ctx.connection().execute(MARK, ("written", tenant))
        states.append(name_of(conn, tenant) + status(conn, job.id))

    drain(dsn, {KIND: handler})
    assert states == ["running"], "nothing is visible before the commit"
    assert (name_of(conn, tenant), status(conn, job_id)) == ("written", "done")
    assert actions(conn, job_id) == ["job_enqueued", "job_done"]
    written = value(conn, "select xmin::text from mdm.aa_tenant where id = %s", tenant)
    assert written == value(conn, "select xmin::text from mdm.aa_job where id = %s", job_id)


def test_b53_slot_records_the_failure_after_an_sql_error(conn: Connection, dsn: str) -> None:
    tenant, broken = make_tenant(conn), enqueue(conn, KIND, {"broken": True})
    sound = enqueue(conn, KIND)

    def handler(job: Job, ctx: Context) -> None:
        ctx.connection().execute(MARK, ("written", tenant))
        if job.payload.get("broken"):
            ctx.connection().execute("select 1/0")

    tally = drain(dsn, {KIND: handler})
    row = job(conn, broken)
    assert (row["status"], row["attempts"], tally.failed) == ("pending", 1, 1)
    assert row["last_error"] == "DivisionByZero: division by zero"
    assert value(conn, "select %s > clock_timestamp() + interval '59 minutes'", row["available_at"])
    assert (status(conn, sound), name_of(conn, tenant)) == ("done", "written")


def swallows(job: Job, ctx: Context) -> None:
    try:
        ctx.connection().execute("select 1/0")
    except psycopg.Error:
        return


def closes(job: Job, ctx: Context) -> None:
    ctx.connection().close()


KEPT: list[Any] = []  # a pipeline ends when nobody refers to it any more


def leaves_a_pipeline(job: Job, ctx: Context) -> None:
    KEPT.append(ctx.connection().pipeline())
    KEPT[-1].__enter__()


def exits(job: Job, ctx: Context) -> None:
    raise SystemExit(3)


def nul(job: Job, ctx: Context) -> None:
    raise ValueError("a\x00b")


@pytest.mark.parametrize(
    ("handler", "error"),
    [
        (swallows, "left its transaction aborted"),
        (closes, "closed or busy"),
        (leaves_a_pipeline, "closed or busy"),
        (exits, "SystemExit: 3"),
        pytest.param(nul, "ValueError: ab", id="test_b17"),
    ],
)
def test_slot_survives_a_bad_handler_and_runs_the_next_job(
    conn: Connection, dsn: str, handler: Callable[[Job, Context], None], error: str
) -> None:
    bad = enqueue(conn, KIND)
    good = enqueue(conn, KIND, {"good": True})
    tenant = make_tenant(conn)

    def either(job: Job, ctx: Context) -> None:
        if job.payload:
            ctx.connection().execute(MARK, ("good", tenant))
        else:
            handler(job, ctx)

    drain(dsn, {KIND: either})
    KEPT.clear()
    row = job(conn, bad)
    assert (row["status"], row["attempts"]) == ("pending", 1)
    assert error in row["last_error"]
    assert (status(conn, good), name_of(conn, tenant)) == ("done", "good")


def test_b55_slot_hides_the_settings_of_a_handler_from_the_next(conn: Connection, dsn: str) -> None:
    for number in range(2):
        enqueue(conn, KIND, {"number": number})
    seen: list[Any] = []

    def handler(job: Job, ctx: Context) -> None:
        given = ctx.connection()
        query = "select current_setting('search_path'), current_setting('statement_timeout'), current_user"
        seen.append(given.execute(query).fetchone())
        given.execute("set search_path = ''")
        given.execute("set statement_timeout = '1h'")
        given.execute("set role mdm_monitor")
        given.execute("create temp table t ()")

    assert drain(dsn, {KIND: handler}).done == 2
    assert seen[0] == seen[1]


def test_slot_finishes_a_job_whose_handler_committed_by_itself(conn: Connection, dsn: str) -> None:
    tenant, job_id = make_tenant(conn), enqueue(conn, KIND)

    def handler(job: Job, ctx: Context) -> None:
        ctx.connection().execute(MARK, ("committed", tenant))
        ctx.connection().execute("commit")

    assert drain(dsn, {KIND: handler}).done == 1
    assert (name_of(conn, tenant), status(conn, job_id)) == ("committed", "done")


def test_slot_fails_a_job_whose_commit_is_refused(conn: Connection, dsn: str) -> None:
    job_id = enqueue(conn, KIND)

    def handler(job: Job, ctx: Context) -> None:
        given = ctx.connection()
        given.execute("create temp table once (n int unique deferrable initially deferred) on commit drop")
        given.execute("insert into once values (1), (1)")

    assert drain(dsn, {KIND: handler}).failed == 1
    row = job(conn, job_id)
    assert row["status"] == "pending"
    assert "once_n_key" in row["last_error"] or "pending trigger events" in row["last_error"]


@pytest.mark.parametrize(
    ("error", "state", "attempts", "text"),
    [
        (PermanentError("never"), "dlq", 1, "PermanentError: never"),
        (RetryLater(7200, "busy"), "pending", 1, "RetryLater: busy"),
        (Snooze(7200, "not now"), "pending", 0, "released: not now"),
        (Snooze(float("nan"), "odd"), "pending", 0, "released: odd"),
        (Snooze(1e300, "odd"), "pending", 0, "released: odd"),
        (RetryLater(-5, "odd"), "pending", 1, "RetryLater: odd"),
    ],
)
def test_slot_obeys_what_a_handler_raises(
    conn: Connection, dsn: str, error: Exception, state: str, attempts: int, text: str
) -> None:
    job_id = enqueue(conn, KIND)

    def handler(job: Job, ctx: Context) -> None:
        raise error

    drain(dsn, {KIND: handler}, mode=Mode.ONCE)
    row = job(conn, job_id)
    assert (row["status"], row["attempts"], row["last_error"]) == (state, attempts, text)
    if "busy" in text or "not now" in text:
        assert value(conn, "select %s - clock_timestamp() between '1:59:00' and '2:00:00'", row["available_at"])


def test_slot_buries_a_job_after_its_last_attempt(conn: Connection, dsn: str) -> None:
    job_id = enqueue(conn, KIND)

    def handler(job: Job, ctx: Context) -> None:
        raise ValueError(f"attempt {job.attempts}")

    for _ in range(3):
        make_due(conn, job_id)
        tally = drain(dsn, {KIND: handler})
    assert (tally.dead, status(conn, job_id)) == (1, "dlq")
    assert job(conn, job_id)["last_error"] == "ValueError: attempt 3"


def test_slot_chunks_are_transactions_and_the_last_carries_the_finish(conn: Connection, dsn: str) -> None:
    tenant, job_id = make_tenant(conn), enqueue(conn, KIND)
    seen: list[tuple[str, str]] = []

    def handler(job: Job, ctx: Context) -> None:
        for number in (1, 2):
            with ctx.chunk() as chunk:
                chunk.connection.execute(MARK, (f"chunk {number}", tenant))
                if number == 2:
                    chunk.finish()
            seen.append((name_of(conn, tenant), status(conn, job.id)))
        with pytest.raises(RuntimeError, match="after the chunk that finished"):
            ctx.connection()

    assert drain(dsn, {KIND: handler}).done == 1
    assert seen == [("chunk 1", "running"), ("chunk 2", "done")]
    assert actions(conn, job_id) == ["job_enqueued", "job_done"]


@pytest.mark.parametrize("where", ["between", "within"])
def test_d24_slot_zombie_in_the_middle_of_its_chunks_commits_nothing_more(
    conn: Connection, dsn: str, where: str
) -> None:
    """Its job is recovered between two chunks, or claimed again while it waits between two statements of one."""
    tenant, job_id = make_tenant(conn), enqueue(conn, KIND)
    heirs: list[Any] = []

    def lose(current: Job) -> None:
        age(conn, current.id)
        recover(conn)
        heirs.extend(claim(conn, KIND, worker_id="heir"))

    def handler(current: Job, ctx: Context) -> None:
        with ctx.chunk() as chunk:
            chunk.connection.execute(MARK, ("chunk 1", tenant))
        if where == "between":
            lose(current)
        for number in (2, 3):
            with ctx.chunk() as chunk:
                chunk.connection.execute(MARK, (f"chunk {number}", tenant))
                if where == "within" and number == 2:
                    lose(current)
                    assert heirs == [], "a chunk that has begun keeps its row"

    tally = drain(dsn, {KIND: handler})
    if where == "between":
        assert (name_of(conn, tenant), tally.lost, tally.done) == ("chunk 1", 1, 0)
        assert (status(conn, job_id), [heir["id"] for heir in heirs]) == ("running", [job_id])
        assert job(conn, job_id)["claimed_by"] == "heir"
    else:
        assert (name_of(conn, tenant), status(conn, job_id), tally.done) == ("chunk 3", "done", 1)
    assert violations(conn) == {}


def test_slot_chunks_without_a_finish_are_finished_afterwards(conn: Connection, dsn: str) -> None:
    tenant, job_id = make_tenant(conn), enqueue(conn, KIND)

    def handler(job: Job, ctx: Context) -> None:
        with ctx.chunk() as chunk:
            chunk.connection.execute(MARK, ("chunk", tenant))

    assert drain(dsn, {KIND: handler}).done == 1
    assert (name_of(conn, tenant), status(conn, job_id)) == ("chunk", "done")


def test_slot_rolls_back_the_chunk_of_an_error_and_keeps_those_before(conn: Connection, dsn: str) -> None:
    tenant, job_id = make_tenant(conn), enqueue(conn, KIND)

    def handler(job: Job, ctx: Context) -> None:
        with ctx.chunk() as chunk:
            chunk.connection.execute(MARK, ("first", tenant))
        with ctx.chunk() as chunk:
            chunk.connection.execute(MARK, ("second", tenant))
            raise ValueError("broken")

    assert drain(dsn, {KIND: handler}).failed == 1
    assert (name_of(conn, tenant), job(conn, job_id)["last_error"]) == ("first", "ValueError: broken")


def test_slot_fails_a_job_whose_handler_left_a_chunk_open(conn: Connection, dsn: str) -> None:
    """And when that is collected later, the transaction of the job that runs then is not rolled back."""
    tenant = make_tenant(conn)
    leaves, next_id = enqueue(conn, KIND, {"leaves": True}), enqueue(conn, KIND)

    def handler(job: Job, ctx: Context) -> None:
        if job.payload:
            KEPT.append(ctx.chunk())
            KEPT[-1].__enter__().connection.execute(MARK, ("left", tenant))
        else:
            ctx.connection().execute(MARK, ("next", tenant))
            KEPT.clear()

    drain(dsn, {KIND: handler})
    assert job(conn, leaves)["last_error"] == "the handler left a chunk open: what was written in it is lost"
    assert (status(conn, leaves), status(conn, next_id), name_of(conn, tenant)) == ("pending", "done", "next")


def test_slot_refuses_its_connection_to_a_handler_that_has_returned(conn: Connection, dsn: str) -> None:
    contexts: list[Context] = []
    refused: list[str] = []
    jobs = [enqueue(conn, KIND) for _ in range(2)]

    def handler(job: Job, ctx: Context) -> None:
        contexts.append(ctx)
        for begin in (contexts[0].connection, contexts[0].chunk().__enter__) if len(contexts) > 1 else ():
            try:
                begin()
            except RuntimeError as error:
                refused.append(str(error))

    drain(dsn, {KIND: handler})
    assert [text.split(":")[0] for text in refused] == [
        "connection() after the handler has returned",
        "chunk() after the handler has returned",
    ]
    assert {status(conn, job_id) for job_id in jobs} == {"done"}


def test_slot_error_after_the_finishing_chunk_changes_nothing(conn: Connection, dsn: str) -> None:
    job_id = enqueue(conn, KIND)

    def handler(job: Job, ctx: Context) -> None:
        with ctx.chunk() as chunk:
            chunk.finish()
        raise ValueError("too late")

    tally = drain(dsn, {KIND: handler})
    assert (tally.done, tally.failed, status(conn, job_id)) == (1, 0, "done")


def test_slot_refuses_a_chunk_inside_the_transaction_of_the_job(conn: Connection, dsn: str) -> None:
    job_id = enqueue(conn, KIND)

    def handler(job: Job, ctx: Context) -> None:
        ctx.connection()
        with ctx.chunk():
            pass

    drain(dsn, {KIND: handler})
    assert "RuntimeError: chunk() inside another transaction" in job(conn, job_id)["last_error"]


@pytest.mark.parametrize("used", [False, True])
def test_b01_slot_that_lost_its_lease_changes_nothing(conn: Connection, dsn: str, used: bool) -> None:
    tenant, job_id = make_tenant(conn), enqueue(conn, KIND)
    other: list[Any] = []

    def handler(job: Job, ctx: Context) -> None:
        if used:
            ctx.connection().execute(MARK, ("zombie", tenant))
        conn.execute("update mdm.aa_job set claimed_at = claimed_at - interval '1 hour' where id = %s", (job.id,))
        assert call(conn, "recover_stale_jobs")
        other.append(claim_one(conn, KIND, worker_id="other"))

    tally = drain(dsn, {KIND: handler}, mode=Mode.ONCE)
    row = job(conn, job_id)
    assert (tally.done, tally.lost) == (0, 1)
    assert (row["status"], row["claimed_by"], row["lease_no"]) == ("running", "other", other[0]["lease_no"])
    assert (name_of(conn, tenant), actions(conn, job_id)) == ("", ["job_enqueued"])


def test_b65_slot_takes_the_next_job_when_its_own_is_gone(conn: Connection, dsn: str) -> None:
    gone, next_id = enqueue(conn, KIND), enqueue(conn, KIND)

    def handler(job: Job, ctx: Context) -> None:
        if job.id == gone:
            call(conn, "stop_job", job_id=gone)
            call(conn, "discard_job", job_id=gone)

    tally = drain(dsn, {KIND: handler})
    assert (tally.done, tally.lost) == (1, 1)
    assert (status(conn, gone), status(conn, next_id)) == ("gone", "done")


def test_slot_lost_answer_to_a_commit_counts_as_the_success_it_was(conn: Connection, dsn: str) -> None:
    job_id, tenant = enqueue(conn, KIND), make_tenant(conn)

    def handler(job: Job, ctx: Context) -> None:
        ctx.connection().execute(MARK, ("written", tenant))
        # Another session finishes the job under the same lease, as if our own commit had gone through unseen.
        call(conn, "finish_job", job_id=job.id, lease_no=job.lease_no)
        conn.execute("select pg_terminate_backend(%s, 30000)", (ctx.connection().info.backend_pid,))

    tally = drain(dsn, {KIND: handler})
    assert (tally.done, tally.failed, tally.lost) == (1, 0, 0)
    assert status(conn, job_id) == "done"


def test_slot_commit_that_was_cut_off_is_a_failure(conn: Connection, dsn: str) -> None:
    job_id, tenant = enqueue(conn, KIND), make_tenant(conn)

    def handler(job: Job, ctx: Context) -> None:
        ctx.connection().execute(MARK, ("written", tenant))
        conn.execute("select pg_terminate_backend(%s, 30000)", (ctx.connection().info.backend_pid,))

    tally = drain(dsn, {KIND: handler})
    assert (tally.done, tally.failed, tally.lost) == (0, 1, 0)
    assert (status(conn, job_id), name_of(conn, tenant)) == ("pending", "")


def test_slot_once_runs_one_job(conn: Connection, dsn: str) -> None:
    for _ in range(3):
        enqueue(conn, KIND)
    assert drain(dsn, {KIND: lambda job, ctx: None}, mode=Mode.ONCE).done == 1
    assert statuses(conn) == {"done": 1, "pending": 2}


def test_slot_once_ends_when_its_job_hangs(conn: Connection, dsn: str) -> None:
    make_kind(conn, KIND, handler_timeout="0.3 seconds")
    jobs, out = [enqueue(conn, KIND) for _ in range(3)], threading.Event()
    tally = drain(dsn, {KIND: lambda job, ctx: out.wait(30)}, mode=Mode.ONCE)
    out.set()
    assert (tally.failed, sum(job(conn, job_id)["attempts"] for job_id in jobs)) == (1, 1)


def test_slot_drain_all_leaves_other_tenants_alone(conn: Connection, dsn: str) -> None:
    tenant, other = make_tenant(conn), make_tenant(conn)
    mine, theirs = enqueue(conn, KIND, tenant_id=tenant), enqueue(conn, KIND, tenant_id=other)
    drain(dsn, {KIND: lambda job, ctx: None}, mode=Mode.DRAIN_ALL, tenant_ids=(tenant,))
    assert (status(conn, mine), status(conn, theirs)) == ("done", "pending")


def test_slot_drain_all_waits_for_retries_of_its_tenants(conn: Connection, dsn: str) -> None:
    make_kind(conn, KIND, base_delay="1 second")
    tenant, runs = make_tenant(conn), list[int]()
    mine = enqueue(conn, KIND, tenant_id=tenant)

    def handler(job: Job, ctx: Context) -> None:
        runs.append(job.id)
        if job.attempts == 1:
            raise ValueError("once more")

    drain(dsn, {KIND: handler}, mode=Mode.DRAIN_ALL, tenant_ids=(tenant,))
    assert (status(conn, mine), runs) == ("done", [mine, mine])


def test_slot_drain_all_does_not_trust_a_count_from_before_a_run_that_failed(
    conn: Connection, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_kind(conn, KIND, base_delay="1 second")
    count, jobs = remainder.Remainder._is_nothing, list[int]()

    def count_before(mine: remainder.Remainder) -> bool:
        found = count(mine)
        if not jobs:
            jobs.append(enqueue(conn, KIND))
            eventually(lambda: job(conn, jobs[0])["last_error"])
        return found

    def handler(job: Job, ctx: Context) -> None:
        if job.attempts == 1:
            raise ValueError("once more")

    monkeypatch.setattr(remainder.Remainder, "_is_nothing", count_before)
    drain(dsn, {KIND: handler}, mode=Mode.DRAIN_ALL)
    assert statuses(conn) == {"done": 1}


def test_slot_drain_all_ends_at_a_signal_though_its_count_hangs(
    conn: Connection, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remainder, "open_jobs", lambda kinds: Call("select pg_sleep(60)::text", list))
    counting = "from pg_stat_activity where application_name = 'jobrunner remainder' and query like '%%pg_sleep%%'"
    with serving(dsn, {KIND: lambda job, ctx: None}, mode=Mode.DRAIN_ALL, grace_seconds=0.1) as served:
        eventually(lambda: value(conn, f"select count(*) {counting} and %s", True))
        served.stop()
        ended = conn.execute(f"select pg_terminate_backend(pid) {counting} and %s", (True,)).fetchall()
    assert ended == [(True,)], "the count did not hang any more: the test proves nothing"


def test_slot_once_ends_when_nothing_is_due(dsn: str) -> None:
    assert drain(dsn, {KIND: lambda job, ctx: None}, mode=Mode.ONCE).ran == 0


def test_b81_slot_leaves_other_kinds_alone(conn: Connection, dsn: str) -> None:
    other = make_kind(conn, "other")
    mine, theirs = enqueue(conn, KIND), enqueue(conn, other)
    drain(dsn, {KIND: lambda job, ctx: None})
    assert (status(conn, mine), status(conn, theirs), job(conn, theirs)["attempts"]) == ("done", "pending", 0)


def test_slot_works_for_its_tenants_only(conn: Connection, dsn: str) -> None:
    tenants = [make_tenant(conn) for _ in range(2)]
    jobs = [enqueue(conn, KIND, tenant_id=tenant) for tenant in tenants]
    drain(dsn, {KIND: lambda job, ctx: None}, tenant_ids=(tenants[1],))
    assert [status(conn, job_id) for job_id in jobs] == ["pending", "done"]


def test_b16_slot_buries_a_payload_that_python_cannot_hold(conn: Connection, dsn: str) -> None:
    job_id = enqueue(conn, KIND)
    conn.execute("update mdm.aa_job set payload = ('{\"n\": ' || repeat('9', 5000) || '}')::jsonb")
    good = enqueue(conn, KIND)
    drain(dsn, {KIND: lambda job, ctx: None})
    states = conn.execute("select id, status::text from mdm.aa_job").fetchall()
    assert dict(states) == {job_id: "dlq", good: "done"}


def test_b83_slot_puts_throttled_jobs_off_without_using_up_attempts(conn: Connection, dsn: str) -> None:
    tenant = make_tenant(conn, metadata={"rate_limit": {KIND: {"rps": 0.01, "burst": 2}}})
    jobs = [enqueue(conn, KIND, tenant_id=tenant) for _ in range(8)]
    free = enqueue(conn, KIND)
    tally = drain(dsn, {KIND: lambda job, ctx: None})
    assert (tally.done, tally.released) == (3, 6)
    assert status(conn, free) == "done"
    waiting = [job(conn, job_id) for job_id in jobs if status(conn, job_id) == "pending"]
    assert [row["attempts"] for row in waiting] == [0] * 6
    delays = sorted(
        value(conn, "select extract(epoch from %s - clock_timestamp())", row["available_at"]) for row in waiting
    )
    assert 60 < delays[0] < 115
    assert 500 < delays[-1] < 665


def test_b24_and_b47_slot_runs_handlers_outside_of_any_transaction(fresh_dsn: str, connect: Any) -> None:
    admin = connect(dsn=fresh_dsn)
    make_kind(admin, KIND)
    admin.execute(f"alter database {admin.info.dbname} set idle_in_transaction_session_timeout = '100ms'")
    job_id = enqueue(admin, KIND)
    states: list[Any] = []

    def handler(job: Job, ctx: Context) -> None:
        query = "select state from pg_stat_activity where application_name = 'jobrunner slot-1'"
        threading.Event().wait(0.5)
        states.extend(admin.execute(query).fetchall())

    assert drain(fresh_dsn, {KIND: handler}).done == 1
    assert states == [("idle",)]
    assert (job(admin, job_id)["attempts"], status(admin, job_id)) == (1, "done")


def test_slot_transaction_of_a_handler_may_be_idle_for_the_ttl(fresh_dsn: str, connect: Any) -> None:
    admin = connect(dsn=fresh_dsn)
    make_kind(admin, KIND, stale_ttl="77 seconds")
    admin.execute(f"alter database {admin.info.dbname} set idle_in_transaction_session_timeout = '100ms'")
    enqueue(admin, KIND)
    seen: list[Any] = []

    def handler(job: Job, ctx: Context) -> None:
        seen.append(ctx.connection().execute("show idle_in_transaction_session_timeout").fetchone())

    assert drain(fresh_dsn, {KIND: handler}).done == 1
    assert seen == [("77s",)]


def test_slot_handler_logs_with_the_fields_of_its_job(conn: Connection, dsn: str) -> None:
    enqueue(conn, KIND)
    extras: list[Any] = []
    drain(dsn, {KIND: lambda job, ctx: extras.append(ctx.logger.extra)})
    assert extras[0].keys() >= {"job_id", "job_kind", "tenant_id", "worker_id", "attempt"}


def test_d3_slot_gives_a_job_that_runs_alone_the_process_to_itself(conn: Connection, dsn: str) -> None:
    """Suspects among other jobs, with four slots: no handler runs beside one of a suspect."""
    made = [enqueue(conn, KIND) for _ in range(40)]
    suspects = made[5::8]
    conn.execute("update mdm.aa_job set run_alone = true where id = any(%s)", (suspects,))
    lock = threading.Lock()
    active: set[int] = set()
    company: list[set[int]] = []

    def handler(job: Job, ctx: Context) -> None:
        with lock:
            active.add(job.id)
            company.append(set(active))
        ctx.connection().execute("select pg_sleep(0.02)")
        with lock:
            active.discard(job.id)

    assert drain(dsn, {KIND: handler}, concurrency=4).done == 40
    assert [seen for seen in company if len(seen) > 1 and seen & set(suspects)] == []
    assert max(map(len, company)) > 1, "nothing ran beside anything: this tests nothing"


def test_d3_slot_whose_handler_hangs_alone_does_not_keep_the_next_suspect_waiting(conn: Connection, dsn: str) -> None:
    make_kind(conn, KIND, handler_timeout="1 second")
    made = [enqueue(conn, KIND, {"hangs": number == 0}) for number in range(3)]
    conn.execute("update mdm.aa_job set run_alone = true, recoveries = 2")
    over = threading.Event()

    def handler(job: Job, ctx: Context) -> None:
        if job.payload["hangs"]:
            over.wait(30)

    with serving(dsn, {KIND: handler}, concurrency=2):
        eventually(lambda: statuses(conn) == {"pending": 1, "done": 2})
        over.set()
    assert status(conn, made[0]) == "pending"


BLOCKED = """
    select count(*) from pg_locks l join pg_stat_activity a using (pid)
    where not l.granted and a.datname = current_database() and a.application_name = 'jobrunner ' || %s
"""


def test_slot_goes_on_while_the_keeper_still_gives_back_what_stood_behind_its_job(
    conn: Connection, dsn: str, connect: Callable[..., Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next claim finds nothing, and its tray is not empty."""
    monkeypatch.setattr(Sizing, "limit", lambda sizing: 2)
    monkeypatch.setattr(keeper, "STUCK_SECONDS", 0.1)
    entered, leave = threading.Event(), threading.Event()
    first, second = enqueue(conn, KIND, {"long": True}), enqueue(conn, KIND)

    def handler(job: Job, ctx: Context) -> None:
        if job.payload:
            entered.set()
            assert leave.wait(30)

    holder = connect(autocommit=False)
    with serving(dsn, {KIND: handler}) as served:
        slot = served.pool._slots[0]
        assert entered.wait(30)
        holder.execute("select from mdm.aa_job where id = %s for update", (second,))
        eventually(lambda: value(conn, BLOCKED, "keeper") == 1)
        leave.set()
        eventually(lambda: status(conn, first) == "done")
        eventually(lambda: served.pool._shared.bell.idle == 1)
        holder.rollback()
        eventually(lambda: statuses(conn) == {"done": 2})
        assert served.pool._slots == [slot]


def test_slot_whose_claim_waits_for_a_lock_on_the_table_does_not_hold_up_the_end(
    fresh_dsn: str, connect: Callable[..., Connection]
) -> None:
    """What is done and not finished yet is finished when the lock is gone, within the grace."""
    other = connect(dsn=fresh_dsn)
    kind = make_kind(other, KIND)
    entered, leave = threading.Event(), threading.Event()

    def handler(job: Job, ctx: Context) -> None:
        entered.set()
        assert leave.wait(30)

    with serving(fresh_dsn, {kind: handler}) as served:
        enqueue(other, kind)
        enqueue(other, kind)
        assert entered.wait(30)
        other.execute("begin")
        other.execute("lock table mdm.aa_job in access exclusive mode")
        leave.set()
        eventually(lambda: value(other, BLOCKED, "slot-1") == 1)
        served.signals.count += 1
        eventually(lambda: not served.pool._slots[0].claiming)
        other.execute("commit")
    assert statuses(other) == {"done": 1, "pending": 1}
