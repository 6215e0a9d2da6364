// What all parts share: the data D of the model, the element `within` that shows it, words for numbers, colours, the tip under the
// pointer, and the layer that is chosen.
const M = D.machine, S = D.summary;
const $ = id => within.querySelector("#" + id);
// What listens to the window stops with the view.
const shown = new AbortController(), whileShown = {signal: shown.signal};

function make(tag, text, name) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (name) element.className = name;
  return element;
}
function draw(parent, tag, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const key in attributes) element.setAttribute(key, attributes[key]);
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
}

const number = (value, digits = 0) => value.toLocaleString("en-US", {maximumFractionDigits: digits});
const percent = value => (100 * value).toFixed(value && value < 0.00995 ? 2 : 1) + "%";
const micro = value => value >= 1000 ? number(value / 1000, 3) + " ms" : value.toFixed(2) + " µs";
const time = cycles => micro(cycles / M.clock * 1e6);
function bytes(value) {
  for (const unit of ["B", "KiB", "MiB"]) {
    if (value < 1024) return number(value, unit === "B" ? 0 : 1) + " " + unit;
    value /= 1024;
  }
  return number(value, 1) + " GiB";
}
function shorten(text, most) {
  if (text.length <= most) return text;
  const left = Math.floor((most - 1) / 2);
  return text.slice(0, left) + "…" + text.slice(text.length - (most - 1 - left));
}
function bar(part) {
  const box = make("span", undefined, "bar"), inside = make("i");
  inside.style.width = Math.min(100, 100 * part) + "%";
  box.append(inside);
  return box;
}

const isDark = () => document.documentElement.dataset.theme === "dark";
const css = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
const REASONS = ["matrix", "vector", "DMA", "waiting"];
// The golden angle keeps the colours of neighbours apart.
const hue = layer => "hsl(" + (layer * 137.508) % 360 + (isDark() ? ",55%,60%)" : ",58%,56%)");
const HEAT = {
  light: [[243, 245, 249], [253, 227, 200], [250, 180, 118], [238, 112, 62], [199, 53, 30]],
  dark: [[34, 43, 56], [72, 53, 41], [128, 76, 40], [192, 99, 44], [247, 144, 66]],
};
function heat(part) {
  const stops = HEAT[isDark() ? "dark" : "light"], at = Math.max(0, Math.min(1, part)) * (stops.length - 1);
  const low = Math.min(stops.length - 2, Math.floor(at));
  return stops[low].map((value, i) => Math.round(value + (stops[low + 1][i] - value) * (at - low)));
}

function hint(event, lines) {
  const tip = $("tip");
  if (!lines || !lines.length) { tip.style.display = "none"; return; }
  tip.replaceChildren(...lines.map(line => make("div", line)));
  tip.style.display = "block";
  tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 6)) + "px";
  tip.style.top = Math.max(4, Math.min(event.clientY + 16, innerHeight - tip.offsetHeight - 6)) + "px";
}

let chosen = -1;
const whenChosen = [], whenPainted = [];
function choose(layer) {
  chosen = chosen === layer ? -1 : layer;
  for (const tell of whenChosen) tell();
}
function repaint() { for (const paint of whenPainted) paint(); }
