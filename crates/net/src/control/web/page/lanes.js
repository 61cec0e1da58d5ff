// The map: workers with their lanes. A lane that moves glides to its new worker.

import { make, rate, share } from "./words.js";

const still = matchMedia("(prefers-reduced-motion: reduce)");

const keyOf = (lane) => `${lane.host}/${lane.bucket}`;

export function laneMap(place, detail) {
  const workers = new Map();
  const blocks = new Map();
  let chosen = null;
  let newest = null;

  function workerBox(number) {
    let box = workers.get(number);
    if (box) return box;
    const name = make("span", "", `worker ${number}`);
    const load = make("span");
    const meter = make("meter");
    meter.max = 1;
    meter.high = 0.9;
    meter.setAttribute("aria-label", `load of worker ${number}`);
    const outside = make("div", "worker", make("h3", "", name, load), meter);
    box = { number, load, meter, groups: new Map(), outside };
    workers.set(number, box);
    place.append(...[...workers.values()].sort((a, b) => a.number - b.number).map((w) => w.outside));
    return box;
  }

  // The blocks of one host at a worker, under its name if there are several.
  function group(box, host, severalHosts) {
    let blocksOfHost = box.groups.get(host);
    if (!blocksOfHost) {
      blocksOfHost = make("div", "blocks");
      box.groups.set(host, blocksOfHost);
      if (severalHosts) box.outside.append(make("p", "quiet", host));
      box.outside.append(blocksOfHost);
    }
    return blocksOfHost;
  }

  function block(lane, severalHosts) {
    let element = blocks.get(keyOf(lane));
    if (!element) {
      element = make("button", "lane", String(lane.bucket));
      element.type = "button";
      element.setAttribute("aria-pressed", "false");
      element.addEventListener("click", () => {
        if (chosen) blocks.get(chosen)?.setAttribute("aria-pressed", "false");
        chosen = chosen === keyOf(lane) ? null : keyOf(lane);
        if (chosen) element.setAttribute("aria-pressed", "true");
        describe();
      });
      blocks.set(keyOf(lane), element);
    }
    const percent = Math.min(100, lane.load * 100);
    // A root, so that small loads are told apart.
    const shade = 10 * Math.sqrt(percent);
    element.style.setProperty("--load", shade.toFixed(1));
    element.classList.toggle("hot", shade > 60);
    const of = severalHosts ? ` of ${lane.host}` : "";
    element.title = `lane ${lane.bucket}${of}: ${share(lane.load)} of a processor`;
    return element;
  }

  // Puts a block among others, in the order of buckets.
  function seat(others, element, bucket) {
    element.dataset.bucket = bucket;
    const after = [...others.children].find((other) => Number(other.dataset.bucket) > bucket);
    others.insertBefore(element, after ?? null);
  }

  function describe() {
    const lane = newest?.lanes.find((l) => keyOf(l) === chosen);
    detail.hidden = !lane;
    if (!lane) return;
    detail.textContent = `Lane ${lane.bucket} of ${lane.host}, at worker ${lane.worker}: ${share(lane.load)} of a processor, ` +
      `${rate(lane.frames)} frames (${rate(lane.redirected)} handed over), ${rate(lane.runs)} task runs, ` +
      `${lane.connections} connections, ${lane.sockets} UDP sockets, ${rate(lane.dropped)} drops, moved ${lane.moves} times`;
  }

  return {
    show(change, workerCount) {
      newest = change;
      const hosts = [...new Set(change.lanes.map((lane) => lane.host))];
      place.classList.toggle("many", change.lanes.length > 256);
      for (let w = 0; w < workerCount; w++) {
        for (const host of hosts) group(workerBox(w), host, hosts.length > 1);
      }
      const loads = new Map(change.workers.map((worker) => [worker.worker, worker.load]));
      const gliding = [];
      for (const lane of change.lanes) {
        const element = block(lane, hosts.length > 1);
        const others = group(workerBox(lane.worker), lane.host, hosts.length > 1);
        if (element.parentElement === others) continue;
        const from = element.parentElement && element.getBoundingClientRect();
        seat(others, element, lane.bucket);
        if (from) gliding.push([element, from]);
      }
      for (const [element, from] of gliding) glide(element, from);
      for (const box of workers.values()) {
        const load = Math.min(1, loads.get(box.number) ?? 0);
        const silent = !loads.has(box.number);
        box.outside.classList.toggle("silent", silent);
        box.load.textContent = silent ? "does not answer" : share(load);
        box.meter.value = load;
      }
      describe();
    },
    clear() {
      workers.clear();
      blocks.clear();
      place.replaceChildren();
      chosen = newest = null;
      detail.hidden = true;
    },
  };
}

function glide(element, from) {
  if (still.matches || !element.animate) return;
  const to = element.getBoundingClientRect();
  const start = `translate(${from.left - to.left}px, ${from.top - to.top}px)`;
  element.animate([{ transform: start, zIndex: 1 }, { transform: "none", zIndex: 1 }], { duration: 700, easing: "ease-in-out" });
}
