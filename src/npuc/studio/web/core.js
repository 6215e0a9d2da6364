// What all views share: questions to the server or to the answers in the file, the state, words for numbers, colours, small elements.
const byId = id => document.getElementById(id);
const embedded = byId("answers") ? JSON.parse(byId("answers").textContent) : null;

// A question has one key whoever asks it: the path and its parameters by name. An exported file has the answers under these keys.
function keyOf(path, parameters) {
  const names = Object.keys(parameters || {}).filter(name => parameters[name] !== "" && parameters[name] !== undefined).sort();
  return path + (names.length ? "?" + names.map(name => name + "=" + parameters[name]).join("&") : "");
}
class Refusal extends Error {
  constructor(told) {
    super([told.where, told.error, told.fix].filter(words => words).join(". "));
    this.code = told.code;
  }
}
// Answers in a file are compressed, each by itself: what nobody looks at is never unpacked.
async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
  return JSON.parse(await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text());
}
async function ask(path, parameters, body, method) {
  if (embedded) {
    const packed = embedded.answers[keyOf(path, parameters)];
    if (packed === undefined) throw new Refusal({error: "This exported page does not have that", fix: "Open the project with npuc studio"});
    return unpacked(packed);
  }
  const query = new URLSearchParams(Object.entries(parameters || {}).filter(([, value]) => value !== "" && value !== undefined)).toString();
  const options = body === undefined ? {method: method || "GET"} : {method: method || "POST", body: body instanceof Blob ? body : JSON.stringify(body)};
  const response = await fetch("/api/" + path + (query ? "?" + query : ""), options);
  const answer = await response.json().catch(() => ({error: "The server gave no answer (" + response.status + ")"}));
  if (!response.ok) throw new Refusal(answer);
  return answer;
}

const state = {project: {files: [], jobs: []}, a: "", b: "", form: "", tab: "graph", layer: "", paint: "kind", sample: "", part: "layers", target: ""};
// A network alone is shown as its file states it, which opens at once; beside another form, as the compiler takes it: their layers match.
const formShown = () => state.form || (state.b && state.b !== state.a ? "canonical" : "original");
const listeners = [];
function change(changes) {
  Object.assign(state, changes);
  for (const tell of listeners) tell(changes);
}
function say(words, wrong) {
  const box = byId("message");
  box.hidden = !words;
  box.textContent = words || "";
  box.classList.toggle("wrong", Boolean(wrong));
}
// Runs what may fail and says why it did; a view that was left in the meantime says nothing.
async function attempt(work) {
  try { await work(); } catch (error) {
    say(error.message, true);
    if (!(error instanceof Refusal)) console.error(error);
  }
}

function element(tag, attributes, ...children) {
  const created = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) created[name] = value;
    else if (name === "class") created.className = value;
    else if (value === true) created.setAttribute(name, "");
    else if (value !== false && value !== undefined && value !== null) created.setAttribute(name, value);
  }
  created.append(...children.filter(child => child !== null && child !== undefined).map(child => child instanceof Node ? child : String(child)));
  return created;
}
const count = (value, digits = 0) => Number(value).toLocaleString("en-US", {maximumFractionDigits: digits});
const share = value => (100 * value).toFixed(1) + "%";
const decibel = value => typeof value === "number" ? value.toFixed(1) : value === "inf" ? "exact" : value === undefined ? "" : String(value);
function size(value) {
  for (const unit of ["B", "KiB", "MiB"]) {
    if (value < 1024) return count(value, unit === "B" ? 0 : 1) + " " + unit;
    value /= 1024;
  }
  return count(value, 1) + " GiB";
}
function cut(text, most) {
  if (text.length <= most) return text;
  const left = Math.floor((most - 1) / 2);
  return text.slice(0, left) + "…" + text.slice(text.length - (most - 1 - left));
}
const style = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
const dark = () => document.documentElement.dataset.theme === "dark";

// Cividis-like: from dark blue to yellow with even lightness, the same to eyes that do not tell red from green.
const RAMP = [[0, 34, 78], [59, 73, 108], [112, 113, 115], [166, 157, 117], [218, 205, 105], [254, 232, 56]];
// From blue over grey to orange, for what has a good and a bad side.
const SIGNED = [[33, 102, 172], [146, 197, 222], [235, 235, 235], [244, 165, 91], [178, 88, 6]];
function mixed(stops, part) {
  const at = Math.max(0, Math.min(1, part)) * (stops.length - 1), low = Math.min(stops.length - 2, Math.floor(at));
  return stops[low].map((value, i) => Math.round(value + (stops[low + 1][i] - value) * (at - low)));
}
const rgb = ([r, g, b]) => "rgb(" + r + "," + g + "," + b + ")";
const inkOn = ([r, g, b]) => 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#18212f" : "#f4f7fb";
// Okabe and Ito's colours: told apart by all eyes.
const CATEGORIES = [[86, 180, 233], [230, 159, 0], [0, 158, 115], [240, 228, 66], [204, 121, 167], [213, 94, 0], [0, 114, 178], [170, 170, 170]];
// The colour of each word: the first words, which should be the most frequent, have one of their own, and the others share grey.
function categories(words) {
  const own = words.length > CATEGORIES.length ? CATEGORIES.length - 1 : words.length;
  return new Map(words.map((word, i) => [word, i < own ? CATEGORIES[i] : CATEGORIES.at(-1)]));
}

function tip(event, lines) {
  const box = byId("tip");
  if (!lines || !lines.length) { box.style.display = "none"; return; }
  box.replaceChildren(...lines.map(line => element("div", {}, line)));
  box.style.display = "block";
  box.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - box.offsetWidth - 6)) + "px";
  box.style.top = Math.max(4, Math.min(event.clientY + 16, innerHeight - box.offsetHeight - 6)) + "px";
}

// A table that sorts; rows are created once and moved. A column is [title, text of a row, key of a row, class].
function sortedTable(rows, columns, pick, label) {
  const head = element("tr"), body = element("tbody");
  const lines = rows.map((row, i) => {
    const line = element("tr", pick ? {tabindex: "0", onclick: () => pick(row, i), onkeydown: event => { if (event.key === "Enter") pick(row, i); }} : {});
    for (const [, text, , kind] of columns) {
      const shown = text(row), cell = element("td", kind ? {class: kind, title: typeof shown === "string" ? shown : undefined} : {}, shown);
      line.append(cell);
    }
    body.append(line);
    return line;
  });
  columns.forEach(([title, , key, kind]) => {
    const cell = element("th", {scope: "col", class: kind});
    cell.append(element("button", {type: "button", onclick: () => {
      const down = cell.getAttribute("aria-sort") === "ascending" || (!cell.hasAttribute("aria-sort") && !kind);
      for (const other of head.children) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", down ? "descending" : "ascending");
      const keys = rows.map(key), order = rows.map((_, i) => i);
      order.sort((a, b) => (keys[a] < keys[b] ? -1 : keys[a] > keys[b] ? 1 : a - b) * (down ? -1 : 1));
      body.append(...order.map(i => lines[i]));
    }}, title));
    head.append(cell);
  });
  const table = element("table", {"aria-label": label}, element("thead", {}, head), body);
  return {table, lines};
}

// A canvas as large as its place, with crisp pixels.
function crisp(canvas, width, height) {
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(width * scale));
  canvas.height = Math.max(1, Math.round(height * scale));
  canvas.style.height = height + "px";
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  return pen;
}
// A matrix of numbers as pixels; texts such as "inf" are drawn as the worst.
function heatMap(rows, low, high, stops) {
  const canvas = element("canvas", {width: rows[0].length, height: rows.length, class: "map", role: "img"});
  const pen = canvas.getContext("2d"), pixels = pen.createImageData(rows[0].length, rows.length), span = high - low || 1;
  rows.forEach((row, y) => row.forEach((value, x) => {
    const colour = typeof value === "number" ? mixed(stops, (value - low) / span) : [255, 0, 255];
    pixels.data.set([...colour, 255], 4 * (y * row.length + x));
  }));
  pen.putImageData(pixels, 0, 0);
  return canvas;
}
// Bars of one or two histograms over the same bins; heights are logarithmic, as one bin often has nearly everything.
function histogram(series, low, high) {
  const width = 300, height = 90, canvas = element("canvas", {class: "histogram", role: "img", "aria-label": "Histogram from " + low + " to " + high});
  canvas.style.width = width + "px";
  const pen = crisp(canvas, width, height), top = Math.log1p(Math.max(1, ...series.flatMap(bins => bins || [])));
  series.forEach((bins, i) => {
    if (!bins) return;
    pen.globalAlpha = series.length > 1 ? 0.6 : 1;
    pen.fillStyle = i ? style("DMA") : style("matrix");
    const step = width / bins.length;
    bins.forEach((value, at) => { const tall = Math.log1p(value) / top * (height - 16); pen.fillRect(at * step, height - 14 - tall, Math.max(1, step - 0.5), tall); });
  });
  pen.globalAlpha = 1;
  pen.fillStyle = style("soft");
  pen.font = "11px system-ui, sans-serif";
  pen.fillText(Number(low).toPrecision(3), 0, height - 2);
  const words = Number(high).toPrecision(3);
  pen.fillText(words, width - pen.measureText(words).width, height - 2);
  return canvas;
}
