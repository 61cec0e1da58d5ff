// Distributions of times as a map of heat: a column for each reading, a row for each class of times.

import { make, time } from "./words.js";

// The time below which this share of the counts lies, microseconds; the bound of its class.
export function quantile(counts, bounds, part) {
  const all = counts.reduce((sum, n) => sum + n, 0);
  if (all === 0) return null;
  let below = 0;
  for (let c = 0; c < counts.length; c++) {
    below += counts[c];
    if (below >= part * all) return bounds[c] ?? Infinity;
  }
  return null;
}

export function heat(place, lengthOf) {
  const canvas = make("canvas");
  canvas.setAttribute("role", "img");
  const marks = make("div", "marks");
  const left = make("span", "", `${lengthOf} s ago`);
  const words = make("p", "quiet");
  const axis = make("div", "axis", left, make("span", "", "now"));
  place.append(words, make("div", "heat", marks, canvas, axis));

  // Rows that were ever hit, with one more on either side; at least six.
  function rows(columns, classes) {
    let low = classes;
    let high = -1;
    for (const { counts } of columns) {
      counts.forEach((n, c) => {
        if (n > 0) [low, high] = [Math.min(low, c), Math.max(high, c)];
      });
    }
    if (high < 0) return null;
    low = Math.max(0, low - 1);
    high = Math.min(classes - 1, high + 1);
    while (high - low < 5 && (low > 0 || high < classes - 1)) [low, high] = [Math.max(0, low - 1), Math.min(classes - 1, high + 1)];
    return [low, high];
  }

  function paint(columns, [low, high]) {
    const scale = devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth * scale, canvas.clientHeight * scale];
    if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
    const context = canvas.getContext("2d");
    context.clearRect(0, 0, width, height);
    context.fillStyle = getComputedStyle(canvas).getPropertyValue("--heat");
    const most = Math.log1p(Math.max(...columns.flatMap((column) => column.counts)));
    const [wide, tall] = [width / lengthOf, height / (high - low + 1)];
    columns.forEach(({ counts }, i) => {
      const x = width - (columns.length - i) * wide;
      for (let c = low; c <= high; c++) {
        if (counts[c] === 0) continue;
        context.globalAlpha = 0.15 + 0.85 * (Math.log1p(counts[c]) / most);
        context.fillRect(x, height - (c - low + 1) * tall, Math.ceil(wide), Math.ceil(tall));
      }
    });
  }

  function mark([low, high], bounds) {
    const step = Math.max(1, Math.ceil((high - low + 1) / 6));
    const spans = [];
    for (let c = low; c <= high; c += step) {
      const span = make("span", "", bounds[c] === undefined ? "more" : time(bounds[c]));
      span.style.top = `${11 * (1 - (c - low + 1) / (high - low + 1))}rem`;
      spans.push(span);
    }
    marks.replaceChildren(...spans);
  }

  return {
    show(columns) {
      const newest = columns.at(-1);
      const range = newest && rows(columns, newest.counts.length);
      place.querySelector(".heat").hidden = !range;
      if (!range) {
        words.textContent = "No samples yet. Round-trip times are TCP's own, so there are none of datagrams and none of kernel sockets.";
        return;
      }
      paint(columns, range);
      mark(range, newest["bounds-us"]);
      const minute = columns.slice(-60).reduce((sum, { counts }) => sum.map((n, c) => n + counts[c]), newest.counts.map(() => 0));
      const of = (part) => {
        const us = quantile(minute, newest["bounds-us"], part);
        return us === null ? "none" : us === Infinity ? "over a minute" : `at most ${time(us)}`;
      };
      words.textContent = `Last minute, ${newest.text}: half of them ${of(0.5)}, 99 % ${of(0.99)}, 99.9 % ${of(0.999)}.`;
      canvas.setAttribute("aria-label", words.textContent);
    },
  };
}
