// Asks for the numbers once a second while somebody looks, and hands what changed to the views.

import { chart } from "./charts.js";
import { laneMap } from "./lanes.js";
import { read, sameRun } from "./reading.js";
import { moveList, showDrops, showQueues, showWorkers } from "./tables.js";
import { heat } from "./times.js";
import { age, count, make, rate, share } from "./words.js";

const EVERY = 1000;
// Readings that are kept: five minutes.
const KEPT = 300;

const by = (id) => document.getElementById(id);
const map = laneMap(by("lanes"), by("lane"));
const packets = chart(by("packets"), KEPT, (c) => ({ at: c.at, in: c.total["packets-in"], out: c.total["packets-out"] }));
const bits = chart(by("bits"), KEPT, (c) => ({ at: c.at, in: c.total["bits-in"], out: c.total["bits-out"] }));
const times = heat(by("times"), KEPT);
const moves = moveList(by("moves"));

// The program's own counts: a chart of the first two, made when they are first seen.
let counts = null;
// Which times are shown; null for the first that there are.
let chosen = null;
let last = null;
let history = [];
let paused = false;
let timer = null;
let asking = false;

function state(name, words) {
  by("state").dataset.state = name;
  by("state").textContent = words;
}

function tiles(change, workerCount) {
  const { total } = change;
  const states = total["tcp-states"];
  const listening = states.LISTEN ?? 0;
  const connections = Object.values(states).reduce((sum, n) => sum + n, 0) - listening;
  const packets = total.kernel ? [] : [["Packets in", rate(total["packets-in"])], ["Packets out", rate(total["packets-out"])]];
  const list = [
    ...change.counts.map((c) => [c.text, rate(c.rate), c.text === "Errors" && c.rate > 0 ? "bad" : ""]), ...packets,
    ["Bits in", `${count(total["bits-in"])}bit/s`], ["Bits out", `${count(total["bits-out"])}bit/s`],
    ...(total.kernel ? [] : [["Aligned", total.aligned === null ? "-" : share(total.aligned)]]), ["Connections", count(connections)],
    ["Processors busy", `${total.load.toFixed(2)} of ${workerCount}`],
    ["Drops", rate(total.dropped), total.dropped > 0 ? "bad" : ""],
  ];
  by("tiles").replaceChildren(...list.map(([name, value, className]) => make("div", className, make("dt", "", name), make("dd", "", value))));
}

function ownCounts(change) {
  const [first, second] = change.counts;
  by("counts-section").hidden = !second;
  if (!second) return;
  if (!counts) {
    by("counts-title").textContent = `${first.text} and ${second.text.toLowerCase()} per second`;
    const pick = (c) => ({ at: c.at, in: c.counts[0]?.rate ?? 0, out: c.counts[1]?.rate ?? 0 });
    counts = chart(by("counts"), KEPT, pick, { in: first.text.toLowerCase(), out: second.text.toLowerCase() });
  }
  counts.show(history);
}

// The times that were chosen, with a button for each if there are several.
function heatMap(change) {
  const names = change.times.map((list) => list.name);
  const name = names.includes(chosen) ? chosen : names[0];
  if (names.length > 1 && by("which").children.length !== names.length) {
    by("which").replaceChildren(...change.times.map((list) => {
      const button = make("button", "", list.text);
      button.type = "button";
      button.dataset.name = list.name;
      button.addEventListener("click", () => {
        chosen = list.name;
        if (history.length > 0) heatMap(history.at(-1));
      });
      return button;
    }));
  }
  for (const button of by("which").children) button.setAttribute("aria-pressed", String(button.dataset.name === name));
  times.show(history.map((c) => c.times.find((list) => list.name === name)).filter(Boolean));
}

function show({ instance, links, change, "worker-count": workerCount }) {
  by("name").textContent = instance.name;
  by("who").textContent = `process ${instance.pid}, up ${age(instance["uptime-ms"] / 1000)}, ${links.join(", ")}`;
  document.title = `flowlane ${instance.name}`;
  tiles(change, workerCount);
  map.show(change, workerCount);
  ownCounts(change);
  by("packets-section").hidden = change.total.kernel;
  packets.show(history);
  bits.show(history);
  heatMap(change);
  showWorkers(by("workers"), change);
  showQueues(by("queues"), change);
  showDrops(by("drops"), change);
  moves.show(change.moves);
}

function begin() {
  history = [];
  map.clear();
  moves.clear();
}

async function turn() {
  timer = null;
  if (asking) return;
  asking = true;
  const asked = performance.now();
  try {
    const reading = await read(last);
    const { change, instance, "worker-count": workerCount } = reading;
    if (last && !sameRun(last, reading)) begin();
    change.at = instance["uptime-ms"] / 1000;
    // The first reading has nothing to be compared with: what it shows are levels, and rates of 0.
    if (last) history = [...history.slice(1 - KEPT), change];
    last = reading;
    const silent = workerCount - change.workers.length;
    // An answer may come after the reader has paused.
    if (silent) state("lost", `${silent} of ${workerCount} workers do not answer`);
    else if (!paused) state("live", "live");
    show(reading);
    document.body.dataset.readings = String(Number(document.body.dataset.readings ?? 0) + 1);
  } catch (error) {
    state("lost", `no answer: ${error.message}`);
  }
  asking = false;
  plan(Math.max(100, EVERY - (performance.now() - asked)));
}

function plan(wait) {
  if (timer === null && !paused && !document.hidden) timer = setTimeout(turn, wait);
}

function stop() {
  clearTimeout(timer);
  timer = null;
}

by("pause").addEventListener("click", () => {
  paused = !paused;
  by("pause").setAttribute("aria-pressed", String(paused));
  by("pause").textContent = paused ? "Go on" : "Pause";
  stop();
  if (paused) state("wait", "paused");
  plan(0);
});
document.addEventListener("visibilitychange", () => {
  stop();
  plan(0);
});
turn();
