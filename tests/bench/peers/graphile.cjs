// graphile-worker: setup | bulk N | worker. NODE_PATH leads to graphile-worker and pg, BENCH_DSN to the database.
const fs = require("fs");
const { Logger, makeWorkerUtils, run, runMigrations } = require("graphile-worker");

const connectionString = process.env.BENCH_DSN;
const logger = new Logger(() => () => {});
const CONCURRENT_JOBS = 24;
const LOCAL_QUEUE = 500;

async function bulk(jobs) {
  const utils = await makeWorkerUtils({ connectionString, logger });
  for (let done = 0; done < jobs; done += 1000) {
    const batch = Array.from({ length: Math.min(1000, jobs - done) }, () => ({ identifier: "noop", payload: { t: 0 } }));
    await utils.addJobs(batch);
  }
  await utils.release();
}

async function work() {
  const file = fs.openSync(`${process.env.BENCH_LOG}/${process.pid}`, "a");
  const record = Buffer.alloc(16);
  const noop = (payload) => {
    record.writeDoubleLE(+payload.t, 0);
    record.writeDoubleLE((performance.timeOrigin + performance.now()) / 1000, 8);
    fs.writeSync(file, record);
  };
  const worker = {
    connectionString,
    logger,
    concurrentJobs: CONCURRENT_JOBS,
    maxPoolSize: CONCURRENT_JOBS + 1,
    pollInterval: 2000,
    localQueue: { size: LOCAL_QUEUE, refetchDelay: { durationMs: 10 } },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
  };
  const runner = await run({ preset: { worker }, taskList: { noop } });
  await runner.promise;
}

async function main(command, count) {
  if (command === "setup") await runMigrations({ connectionString, logger });
  else if (command === "bulk") await bulk(+count);
  else await work();
}

main(...process.argv.slice(2)).then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
