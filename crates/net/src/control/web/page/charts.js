// Lines over the last minutes: one coming in, one going out.

import { count, make } from "./words.js";

const WIDTH = 600;
const HEIGHT = 100;
const SVG = "http://www.w3.org/2000/svg";

function shape(tag, className) {
  const element = document.createElementNS(SVG, tag);
  if (className) element.setAttribute("class", className);
  return element;
}

// The least round number that is not below `n`: 1, 2 or 5 with zeros.
function round(n) {
  if (n <= 1) return 1;
  const ten = 10 ** Math.floor(Math.log10(n));
  return [1, 2, 5, 10].map((m) => m * ten).find((m) => m >= n);
}

// A chart of `lengthOf` readings, of two lines that `pick` takes from a reading; their names.
export function chart(place, lengthOf, pick, names = { in: "in", out: "out" }) {
  const svg = shape("svg");
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  const lines = { in: shape("path", "in"), out: shape("path", "out") };
  const cross = shape("line", "cross");
  cross.setAttribute("y2", HEIGHT);
  cross.style.display = "none";
  const box = make("div", "chart", svg);
  for (const part of [0, 0.5]) {
    const grid = shape("line", "grid");
    for (const [name, value] of Object.entries({ x2: WIDTH, y1: part * HEIGHT, y2: part * HEIGHT })) grid.setAttribute(name, value);
    svg.append(grid);
  }
  const base = shape("line", "grid");
  for (const [name, value] of Object.entries({ x2: WIDTH, y1: HEIGHT, y2: HEIGHT })) base.setAttribute(name, value);
  svg.append(base, lines.in, lines.out, cross);
  const ticks = [0, 0.5].map((part) => {
    const tick = make("span", "tick");
    tick.style.top = `calc(${part} * 9rem + 1.1em)`;
    box.append(tick);
    return tick;
  });
  const values = { in: make("span"), out: make("span") };
  const legend = make("div", "legend", make("span", "", make("i", "in"), `${names.in} `, values.in), make("span", "", make("i", "out"), `${names.out} `, values.out));
  const when = make("span", "quiet");
  legend.append(when);
  const left = make("span");
  place.append(legend, box, make("div", "axis", left, make("span", "", "now")));

  let shown = [];
  let pointed = null;

  function say() {
    const at = pointed === null ? shown.length - 1 : Math.round(pointed * (lengthOf - 1)) - (lengthOf - shown.length);
    const point = shown[at];
    cross.style.display = pointed !== null && point ? "" : "none";
    when.textContent = pointed !== null && point ? `${Math.round(shown.at(-1).at - point.at)} s ago` : "";
    for (const name of ["in", "out"]) values[name].textContent = point ? count(point[name]) : "";
    if (!point) return;
    const x = WIDTH * (1 - (shown.length - 1 - at) / (lengthOf - 1));
    cross.setAttribute("x1", x);
    cross.setAttribute("x2", x);
  }
  svg.addEventListener("pointermove", (event) => {
    const { left: from, width } = svg.getBoundingClientRect();
    pointed = Math.min(1, Math.max(0, (event.clientX - from) / width));
    say();
  });
  svg.addEventListener("pointerleave", () => {
    pointed = null;
    say();
  });

  return {
    show(readings) {
      shown = readings.map(pick);
      const top = round(Math.max(1, ...shown.flatMap((p) => [p.in, p.out])));
      const x = (i) => (WIDTH * (lengthOf - shown.length + i)) / (lengthOf - 1);
      for (const name of ["in", "out"]) {
        const points = shown.map((p, i) => `${x(i).toFixed(1)},${(HEIGHT * (1 - p[name] / top)).toFixed(2)}`);
        lines[name].setAttribute("d", points.length ? `M${points.join("L")}` : "");
      }
      ticks[0].textContent = count(top);
      ticks[1].textContent = count(top / 2);
      left.textContent = `${lengthOf} s ago`;
      const last = shown.at(-1);
      svg.setAttribute("aria-label", last ? `${names.in} ${count(last.in)}, ${names.out} ${count(last.out)}` : "nothing yet");
      say();
    },
  };
}
