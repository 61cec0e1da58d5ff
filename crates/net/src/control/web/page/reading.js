// A reading of the numbers, and what happened between two readings.

export async function read() {
  const answer = await fetch("/v1/live", { cache: "no-store", signal: AbortSignal.timeout(8000) });
  if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
  const document = await answer.json();
  if (document.version !== 1) throw new Error("this page is older or newer than the server: load it again");
  return document;
}

// Whether both are of one run of one program.
export const sameRun = (a, b) => a.instance.pid === b.instance.pid && a.instance.started === b.instance.started;

const risen = (now, then) => Math.max(0, now - (then ?? now));

function lanesOf(reading) {
  const lanes = new Map();
  for (const worker of reading.workers) {
    for (const { host, lanes: list } of worker.hosts) {
      for (const lane of list) lanes.set(`${host}/${lane.bucket}`, { ...lane, host, worker: worker.worker });
    }
  }
  return lanes;
}

const queueKey = (worker, queue) => `${worker}/${queue.host}/${queue.interface}/${queue.queue}`;

function queuesOf(reading) {
  const queues = new Map();
  for (const worker of reading.workers) {
    for (const queue of worker.queues) queues.set(queueKey(worker.worker, queue), { ...queue, worker: worker.worker });
  }
  return queues;
}

const LOST = ["rx-no-frame", "rx-ring-full", "rx-bad", "tx-failed", "tx-far-full"];

// What happened between two readings of one run: rates are per second.
export function between(then, now) {
  const seconds = Math.max(0.001, (now.instance["uptime-ms"] - then.instance["uptime-ms"]) / 1000);
  const rate = (a, b) => risen(a, b) / seconds;
  const before = lanesOf(then);
  const moves = [];
  const lanes = [...lanesOf(now)].map(([key, lane]) => {
    const was = before.get(key);
    if (was && was.worker !== lane.worker) moves.push({ host: lane.host, bucket: lane.bucket, from: was.worker, to: lane.worker });
    return {
      key, host: lane.host, bucket: lane.bucket, worker: lane.worker, moves: lane.moves,
      connections: lane.connections, sockets: lane.sockets,
      load: rate(lane["busy-nanos"], was?.["busy-nanos"]) / 1e9,
      frames: rate(lane.aligned + lane.redirected, was && was.aligned + was.redirected),
      runs: rate(lane["task-runs"], was?.["task-runs"]),
      redirected: rate(lane.redirected, was?.redirected),
      dropped: rate(lane.dropped, was?.dropped),
    };
  });
  const queuesBefore = queuesOf(then);
  const queues = [...queuesOf(now)].map(([key, queue]) => {
    const was = queuesBefore.get(key)?.counters ?? {};
    const of = (name) => rate(queue.counters[name], was[name]);
    return {
      host: queue.host, interface: queue.interface, queue: queue.queue, worker: queue.worker,
      framesIn: of("rx-frames"), framesOut: of("tx-frames"), bytesIn: of("rx-bytes"), bytesOut: of("tx-bytes"),
      lost: LOST.reduce((sum, name) => sum + of(name), 0), calls: of("system-calls"),
    };
  });
  const dropKey = (drop) => `${drop.host}/${drop.layer}/${drop.reason}`;
  const dropsBefore = new Map(then.drops.map((drop) => [dropKey(drop), drop.count]));
  const drops = now.drops.map((drop) => ({ ...drop, rate: rate(drop.count, dropsBefore.get(dropKey(drop)) ?? 0) }));
  const workersBefore = new Map(then.workers.map((worker) => [worker.worker, worker]));
  const workers = now.workers.map((worker) => {
    const was = workersBefore.get(worker.worker);
    const of = (name) => rate(worker[name], was?.[name]);
    return {
      worker: worker.worker, turns: of("turns"), busyTurns: of("busy-turns"), sleeps: of("sleeps"),
      framesFree: worker["frames-free"], exhausted: of("frames-exhausted"),
      steps: Object.entries(worker.time).map(([name, nanos]) => [name, rate(nanos, was?.time[name]) / 1e9]),
    };
  });
  const timesBefore = new Map(then.times.map((list) => [list.name, list.counts]));
  const times = now.times.map((list) => ({
    name: list.name, text: list.text, bounds: list["bounds-us"],
    counts: list.counts.map((n, c) => risen(n, timesBefore.get(list.name)?.[c])),
  }));
  const countsBefore = new Map(then.counts.map((list) => [list.text, list]));
  const counts = now.counts.map(({ text, count, "at-us": at }) => {
    const was = countsBefore.get(text);
    // Some are counted at times of their own.
    const took = at === null ? seconds : (at - (was?.["at-us"] ?? at)) / 1e6;
    return { text, rate: took > 0 ? risen(count, was?.count) / took : 0 };
  });
  const bytes = (name) => rate(sumOf(now.hosts, name), sumOf(then.hosts, name));
  const sum = (list, name) => list.reduce((total, item) => total + item[name], 0);
  return {
    at: now.instance["uptime-ms"] / 1000, seconds, lanes, queues, drops, workers, moves, times, total: totals(then, now, rate),
    workerCount: now["worker-count"], packetsIn: sum(queues, "framesIn"), packetsOut: sum(queues, "framesOut"),
    bitsIn: 8 * bytes("bytes-in"), bitsOut: 8 * bytes("bytes-out"), dropped: sum(drops, "rate"), counts,
    kernel: now.hosts.every((host) => host.kernel),
  };
}

const sumOf = (list, name) => list.reduce((total, item) => total + item[name], 0);

// Sums over the hosts.
function totals(then, now, rate) {
  const of = (reading, name) => reading.hosts.reduce((sum, host) => sum + host.steering[name], 0);
  const received = rate(of(now, "received"), of(then, "received"));
  const aligned = rate(of(now, "aligned"), of(then, "aligned"));
  const states = {};
  for (const host of now.hosts) {
    for (const [state, n] of Object.entries(host["tcp-states"])) states[state] = (states[state] ?? 0) + n;
  }
  return { received, aligned: received > 0 ? aligned / received : null, states };
}
