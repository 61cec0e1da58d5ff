// Tables of workers, queues, drops and moves.

import { count, make, rate, share } from "./words.js";

function table(head, rows) {
  const cells = (tag, list) => make("tr", "", ...list.map((cell) => {
    const { text, className } = typeof cell === "object" && !(cell instanceof Node) ? cell : { text: cell };
    return make(tag, className, text);
  }));
  return make("table", "", make("thead", "", cells("th", head)), make("tbody", "", ...rows.map((row) => cells("td", row))));
}

const bad = (n) => ({ text: rate(n), className: n > 0 ? "bad" : "" });

function bar(steps) {
  const parts = steps.map(([name, part], i) => {
    const piece = make("span");
    piece.style.width = `${100 * part}%`;
    piece.style.background = `var(--s${Math.min(6, i)})`;
    piece.title = `${name} ${share(part)}`;
    return piece;
  });
  const all = make("div", "steps", ...parts);
  all.setAttribute("role", "img");
  all.setAttribute("aria-label", steps.map(([name, part]) => `${name} ${share(part)}`).join(", "));
  return all;
}

export function showWorkers(place, change) {
  const steps = change.workers[0]?.steps ?? [];
  const head = ["worker", "turns", "of them busy", "sleeps", "free frames", "no frame", { text: "where its time goes", className: "words" }];
  const rows = change.workers.map((w) => [
    String(w.worker), rate(w.turns), w.turns > 0 ? share(Math.min(1, w["busy-turns"] / w.turns)) : "-", rate(w.sleeps), count(w["frames-free"]), bad(w["frames-exhausted"]),
    bar(w.steps),
  ]);
  const legend = make("div", "legend", ...steps.map(([name], i) => {
    const box = make("i", "box");
    box.style.background = `var(--s${Math.min(6, i)})`;
    return make("span", "", box, name);
  }));
  place.replaceChildren(table(head, rows), legend);
}

export function showQueues(place, change) {
  if (change.queues.length === 0) {
    place.replaceChildren(make("p", "quiet", "No queues: packets come through kernel sockets."));
    return;
  }
  const name = (q) => `${q.host} ${q.interface}:${q.queue ?? "-"}`;
  const rows = change.queues.map((q) => [
    name(q), String(q.worker), rate(q["frames-in"]), rate(q["frames-out"]), `${count(q["bits-in"])}bit/s`, `${count(q["bits-out"])}bit/s`, bad(q.lost), rate(q.calls),
  ]);
  place.replaceChildren(table(["host interface:queue", "worker", "in", "out", "in", "out", "lost", "system calls"], rows));
}

export function showDrops(place, change) {
  if (change.drops.length === 0) {
    place.replaceChildren(make("p", "quiet", "None."));
    return;
  }
  const several = new Set(change.drops.map((drop) => drop.host)).size > 1;
  const where = (drop) => (several && drop.host ? `${drop.host}, ${drop.layer}` : drop.layer);
  const rows = [...change.drops].sort((a, b) => b.rate - a.rate || b.count - a.count).map((d) => [
    { text: `${where(d)}: ${d.text}`, className: "words" }, bad(d.rate), count(d.count),
  ]);
  place.replaceChildren(table([{ text: "reason", className: "words" }, "now", "in all"], rows));
}

// Moves of lanes, the newest first, at most a hundred.
export function moveList(place) {
  const none = () => place.replaceChildren(make("li", "quiet", "None since this page was opened."));
  let empty = true;
  none();
  return {
    show(moves) {
      if (moves.length === 0) return;
      if (empty) place.replaceChildren();
      empty = false;
      const at = new Date().toLocaleTimeString();
      for (const m of moves) place.prepend(make("li", "", `${at}: lane ${m.bucket} of ${m.host}, from worker ${m.from} to ${m.to}`));
      while (place.children.length > 100) place.lastElementChild.remove();
    },
    clear() {
      empty = true;
      none();
    },
  };
}
