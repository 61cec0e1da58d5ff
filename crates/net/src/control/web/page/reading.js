// What happened since an earlier reading, as the server reckons it: rates are per second.

// `last`: the reading before, null if there is none.
export async function read(last) {
  const since = last ? `?since=${last.reading}` : "";
  const answer = await fetch(`/v1/change${since}`, { cache: "no-store", signal: AbortSignal.timeout(8000) });
  if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
  const reading = JSON.parse(await answer.text(), (_, value) => (typeof value === "string" ? legible(value) : value));
  if (reading.version !== 1) throw new Error("this page is older or newer than the server: load it again");
  return reading;
}

// Names are of whoever started the program: characters that change the direction of writing, or control, are shown and do nothing.
const legible = (text) =>
  text.replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g,
    (c) => `\\u{${c.codePointAt(0).toString(16)}}`);

// Whether both are of one run of one program.
export const sameRun = (a, b) => a.instance.pid === b.instance.pid && a.instance.started === b.instance.started;
