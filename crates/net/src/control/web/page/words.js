// Numbers as people read them.

const LARGE = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

// Three digits and a letter: 1.23 M.
export function count(n) {
  for (const [unit, letter] of LARGE) {
    if (n >= unit * 0.9995) return `${digits(n / unit)} ${letter}`;
  }
  return Number.isInteger(n) || n >= 100 ? String(Math.round(n)) : digits(n);
}

function digits(n) {
  return n >= 99.95 ? n.toFixed(0) : n >= 9.995 ? n.toFixed(1) : n.toFixed(2);
}

export const rate = (n) => `${count(n)}/s`;

export const share = (part) => (part >= 0.9995 ? "100 %" : `${(part * 100).toFixed(part < 0.1 ? 2 : 1)} %`);

// A time given in microseconds.
export function time(us) {
  if (us < 1000) return `${digits(us).replace(/\.0+$/, "")} µs`;
  if (us < 1e6) return `${digits(us / 1e3)} ms`;
  return `${digits(us / 1e6)} s`;
}

export function age(seconds) {
  const s = Math.floor(seconds);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

// An element with text and children. Text never becomes markup.
export function make(tag, className, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children);
  return element;
}
