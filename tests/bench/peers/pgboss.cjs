// pg-boss 12: setup | bulk N | single | worker. NODE_PATH leads to pg-boss and pg, BENCH_DSN to the database.
const fs = require("fs");
const path = require("path");

const WORKERS = 2;
const BATCH = 200;

async function open(worker) {
  const { PgBoss } = require("pg-boss");
  const boss = new PgBoss({
    connectionString: process.env.BENCH_DSN,
    max: 10,
    useListenNotify: worker,
    schedule: false,
    supervise: worker,
  });
  boss.on("error", (error) => console.error(error));
  await boss.start();
  return boss;
}

async function setup() {
  const boss = await open(false);
  await boss.createQueue("noop", { notify: true });
  await boss.stop();
}

async function bulk(jobs) {
  const boss = await open(false);
  for (let done = 0; done < jobs; done += 1000) {
    await boss.insert("noop", Array.from({ length: Math.min(1000, jobs - done) }, () => ({ data: { t: 0 } })));
  }
  await boss.stop({ graceful: false });
}

// The statement of its own send(), with the notification in the same transaction.
async function single() {
  const plans = path.join(path.dirname(require.resolve("pg-boss")), "plans.js");
  const { insertJobs } = await import(`file://${plans}`);
  const text = insertJobs("pgboss", { table: "job_common", name: "noop", returnId: true, notify: true });
  console.log(text.replace("$1::text::json", "json_build_array(json_build_object('data', {payload}))"));
}

async function work() {
  const boss = await open(true);
  const file = fs.openSync(`${process.env.BENCH_LOG}/${process.pid}`, "a");
  const record = Buffer.alloc(16);
  const settings = {
    batchSize: BATCH,
    localConcurrency: WORKERS,
    burstWhenBatchFull: true,
    pollingIntervalSeconds: 0.5,
    notifyPollingIntervalSeconds: 0.5,
  };
  await boss.work("noop", settings, async (jobs) => {
    for (const job of jobs) {
      record.writeDoubleLE(+job.data.t, 0);
      record.writeDoubleLE((performance.timeOrigin + performance.now()) / 1000, 8);
      fs.writeSync(file, record);
    }
  });
  await new Promise((resolve) => process.on("SIGTERM", resolve));
  await boss.stop({ graceful: true, timeout: 5000 });
}

async function main(command, count) {
  if (command === "setup") await setup();
  else if (command === "bulk") await bulk(+count);
  else if (command === "single") await single();
  else await work();
}

main(...process.argv.slice(2)).then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
