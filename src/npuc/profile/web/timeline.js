// Instructions by queue and objects in local memory, over the same cycles.
const LEFT = 92, LANE = 28, AXIS = 24, MAP = 240;
const LAST = Math.max(1, D.cycles);
let view = [0, LAST];
const core = $("core");
for (let i = 0; i < M.cores; i++) core.append(make("option", i));
core.onchange = () => drawMemory();
$("core-choice").hidden = M.cores < 2;
$("memory-size").textContent = bytes(S.on_chip) + " of " + bytes(M.local) + " at the peak";

function prepare(canvas, height) {
  const scale = window.devicePixelRatio || 1, width = canvas.clientWidth || 1000;
  canvas.style.height = height + "px";
  canvas.width = width * scale;
  canvas.height = height * scale;
  const g = canvas.getContext("2d");
  g.setTransform(scale, 0, 0, scale, 0, 0);
  g.font = "12px system-ui, sans-serif";
  g.textBaseline = "middle";
  return [g, width];
}
const place = (cycle, width) => LEFT + (cycle - view[0]) / (view[1] - view[0]) * (width - LEFT);
const cycleAt = (x, width) => view[0] + (x - LEFT) / (width - LEFT) * (view[1] - view[0]);
function axis(g, width, y, label) {
  const least = (view[1] - view[0]) / Math.max(2, (width - LEFT) / 120);
  let step = Math.pow(10, Math.floor(Math.log10(least)));
  for (const m of [1, 2, 5, 10]) if (step * m >= least) { step *= m; break; }
  step = Math.max(1, step);
  for (let cycle = Math.ceil(view[0] / step) * step; cycle <= view[1]; cycle += step) {
    const x = place(cycle, width);
    g.fillStyle = css("grid");
    g.fillRect(x, 0, 1, y);
    g.fillStyle = css("soft");
    if (x < width - 60) g.fillText(number(cycle), x + 4, y + AXIS / 2);
  }
  g.fillStyle = css("soft");
  g.fillText(label, 12, y + AXIS / 2);
  if (view[1] - view[0] < LAST) {
    g.fillStyle = css("fade");
    g.fillRect(LEFT, y, width - LEFT, 3);
    g.fillStyle = css("accent");
    g.fillRect(LEFT + view[0] / LAST * (width - LEFT), y, Math.max(3, (view[1] - view[0]) / LAST * (width - LEFT)), 3);
  }
}
function firstAfter(values, limit) {
  let a = 0, b = values.length;
  while (a < b) { const m = (a + b) >> 1; if (values[m] > limit) b = m; else a = m + 1; }
  return a;
}
function drawTimeline() {
  const height = D.lanes.length * LANE + AXIS + 6, [g, width] = prepare($("timeline"), height);
  axis(g, width, height - AXIS, "cycle");
  const faded = css("fade"), ink = css("ink");
  D.lanes.forEach((lane, row) => {
    const y = row * LANE + 3;
    g.fillStyle = ink;
    g.fillText((M.cores > 1 ? lane.core + "  " : "") + lane.queue, 12, y + LANE / 2);
    let before = -1, last = "";
    for (let i = firstAfter(lane.end, view[0]); i < lane.start.length && lane.start[i] < view[1]; i++) {
      const a = Math.max(LEFT, place(lane.start[i], width)), b = Math.min(width, place(lane.end[i], width));
      const shade = chosen < 0 || lane.layer[i] === chosen ? hue(lane.layer[i]) : faded;
      if (b - before < 0.5 && shade === last) continue;
      g.fillStyle = shade;
      g.fillRect(a, y + 4, Math.max(lane.layer[i] === chosen ? 2 : 0.7, b - a - 0.4), LANE - 8);
      before = b;
      last = shade;
      if (b - a > 64 && shade !== faded) {
        const name = D.layers[lane.layer[i]].name;
        g.fillStyle = isDark() ? "#0f141b" : "#ffffff";
        g.fillText(shorten(lane.index && b - a > 160 ? D.opcodes[lane.op[i]] + " " + name : name, Math.floor((b - a - 10) / 7)), a + 5, y + LANE / 2);
      }
    }
  });
  drawMarks(g, width);
}
// The instruction that is looked at, with a line from each that it waited for and to each that waits for it.
let marks = [];
function mark(list) { marks = list; later(); }
function drawMarks(g, width) {
  const rowOf = one => D.lanes.findIndex(lane => lane.core === one.core && lane.queue === one.queue), own = marks.find(one => one.role === "this");
  if (!own) return;
  const middle = one => rowOf(one) * LANE + 3 + LANE / 2, clamp = x => Math.max(LEFT - 4, Math.min(width + 4, x));
  for (const one of marks) {
    const a = clamp(place(one.start, width)), b = clamp(place(one.end, width)), y = rowOf(one) * LANE + 6;
    g.lineWidth = one === own ? 2.5 : 1.5;
    g.strokeStyle = one === own ? css("ink") : css("accent");
    g.setLineDash(one.role === "follower" ? [4, 3] : []);
    g.strokeRect(a, y, Math.max(2, b - a), LANE - 7);
    if (one !== own) {
      const [from, to] = one.role === "follower" ? [own, one] : [one, own], x1 = clamp(place(from.end, width)), x2 = clamp(place(to.start, width));
      g.beginPath();
      g.moveTo(x1, middle(from));
      g.bezierCurveTo(x1 + 14, middle(from), x2 - 14, middle(to), x2, middle(to));
      g.stroke();
    }
  }
  g.setLineDash([]);
}
const owner = new Map(D.layers.map((layer, i) => [layer.name, i]));
const ownerOf = name => { const i = owner.get(name.split("/constants")[0]); return i === undefined ? -1 : i; };
const objects = D.memory.map(([on, start, end, address, size, name]) => ({on, start, end, address, size, name, layer: ownerOf(name)}));
const mine = () => objects.filter(one => one.on === +core.value);
// A nearly empty memory is shown as far as objects lie in it: what they take together may be far less.
const REACH = objects.reduce((most, one) => Math.max(most, one.address + one.size), 0);
const SHOWN = REACH < M.local / 2 ? Math.max(64, REACH * 1.05) : M.local;
function drawMemory() {
  const [g, width] = prepare($("memory"), MAP + AXIS);
  axis(g, width, MAP, "cycle");
  const faded = css("fade"), plain = css("waiting");
  g.fillStyle = css("ink");
  g.fillText(SHOWN < M.local ? bytes(Math.round(SHOWN)) : bytes(M.local), 12, 10);
  g.fillText("0", 12, MAP - 10);
  for (const one of mine()) {
    if (one.end < view[0] || one.start > view[1]) continue;
    const a = Math.max(LEFT, place(one.start, width)), b = Math.min(width, place(one.end, width));
    const y = MAP * (1 - (one.address + one.size) / SHOWN), h = Math.max(1, MAP * one.size / SHOWN);
    g.fillStyle = chosen < 0 || one.layer === chosen ? (one.layer < 0 ? plain : hue(one.layer)) : faded;
    g.fillRect(a, y, Math.max(0.7, b - a - 0.4), h > 3 ? h - 0.5 : h);
  }
}
let waiting = false;
function later() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; drawTimeline(); drawMemory(); });
}
function look(start, end) {
  const length = Math.min(LAST, Math.max(8, end - start)), from = Math.max(0, Math.min(LAST - length, (start + end - length) / 2));
  view = [from, from + length];
  later();
}
function zoom(factor, at = (view[0] + view[1]) / 2) { look(at - (at - view[0]) * factor, at + (view[1] - at) * factor); }

function spanAt(x, y, width) {
  const lane = D.lanes[Math.floor((y - 3) / LANE)];
  if (!lane || x < LEFT) return null;
  const at = cycleAt(x, width), slack = (view[1] - view[0]) / (width - LEFT), i = firstAfter(lane.end, at - slack);
  return i < lane.start.length && lane.start[i] <= at + slack ? [lane, i] : null;
}
function overTimeline(x, y, width) {
  const found = spanAt(x, y, width);
  if (!found) return [];
  const [lane, i] = found, length = lane.end[i] - lane.start[i];
  return [
    D.layers[lane.layer[i]].name, lane.queue + ": " + D.opcodes[lane.op[i]] + (M.cores > 1 ? ", core " + lane.core : ""),
    number(length) + " cycles (" + time(length) + ")", "from " + number(lane.start[i]) + " to " + number(lane.end[i]),
  ];
}
// Which part of the NPU, core and number in its stream a span is.
function instructionOf(lane, i) {
  let part = 0;
  while (part + 1 < lane.parts.length && lane.parts[part + 1] <= i) part += 1;
  return {part, core: lane.core, index: lane.index[i]};
}
const layerNamed = name => owner.has(name) ? owner.get(name) : -1;
// The first instruction of the layer that is chosen.
function firstOfChosen() {
  let best = null;
  for (const lane of D.lanes) { const i = lane.layer.indexOf(chosen); if (i >= 0 && (!best || lane.start[i] < best[0].start[best[1]])) best = [lane, i]; }
  return best && instructionOf(...best);
}
$("chosen-code").hidden = !onInstruction;
$("chosen-code").onclick = () => { const first = firstOfChosen(); if (first) onInstruction(first); };
function objectsAt(x, y, width) {
  const at = cycleAt(x, width), address = (1 - y / MAP) * SHOWN, grain = SHOWN / MAP;
  return x < LEFT ? [] : mine().filter(one => one.start <= at && at <= one.end && one.address <= address + grain && address - grain <= one.address + one.size);
}
const overMemory = (x, y, width) => objectsAt(x, y, width).slice(0, 6).map(
  one => one.name + ": " + bytes(one.size) + " at " + number(one.address) + ", cycles " + number(one.start) + " to " + number(one.end));
function pickTimeline(x, y, width) { const found = spanAt(x, y, width); return found ? found[0].layer[found[1]] : -1; }
function pickMemory(x, y, width) { const found = objectsAt(x, y, width)[0]; return found ? found.layer : -1; }

for (const [id, over, pick] of [["timeline", overTimeline, pickTimeline], ["memory", overMemory, pickMemory]]) {
  const canvas = $(id);
  let grabbed = null;
  canvas.addEventListener("wheel", event => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(Math.exp(event.deltaY * 0.003), cycleAt(Math.max(LEFT, event.offsetX), canvas.clientWidth));
  }, {passive: false});
  canvas.onpointerdown = event => { grabbed = {x: event.offsetX, view, moved: false}; canvas.setPointerCapture(event.pointerId); };
  canvas.onpointerup = event => {
    const still = grabbed && !grabbed.moved, layer = still ? pick(event.offsetX, event.offsetY, canvas.clientWidth) : -1;
    grabbed = null;
    const span = still && onInstruction && id === "timeline" ? spanAt(event.offsetX, event.offsetY, canvas.clientWidth) : null;
    if (span) onInstruction(instructionOf(...span));
    if (layer >= 0 && !(span && layer === chosen)) choose(layer);
  };
  canvas.onpointermove = event => {
    if (!grabbed) { hint(event, over(event.offsetX, event.offsetY, canvas.clientWidth)); return; }
    if (Math.abs(event.offsetX - grabbed.x) < 3 && !grabbed.moved) return;
    grabbed.moved = true;
    hint(event, null);
    const length = grabbed.view[1] - grabbed.view[0], by = (grabbed.x - event.offsetX) / (canvas.clientWidth - LEFT) * length;
    const start = Math.max(0, Math.min(LAST - length, grabbed.view[0] + by));
    look(start, start + length);
  };
  canvas.onpointercancel = () => { grabbed = null; };
  canvas.onpointerleave = event => hint(event, null);
  canvas.ondblclick = () => look(0, LAST);
}
$("timeline").onkeydown = event => {
  const step = (view[1] - view[0]) / 5;
  const does = {
    "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6), "0": () => look(0, LAST),
    ArrowLeft: () => look(Math.max(0, view[0] - step), Math.max(view[1] - view[0], view[1] - step)),
    ArrowRight: () => look(Math.min(LAST - (view[1] - view[0]), view[0] + step), Math.min(LAST, view[1] + step)),
  }[event.key];
  if (does) { event.preventDefault(); does(); }
};
$("zoom-in").onclick = () => zoom(0.6);
$("zoom-out").onclick = () => zoom(1 / 0.6);
$("zoom-all").onclick = () => look(0, LAST);
$("chosen-zoom").onclick = () => {
  let start = LAST, end = 0;
  for (const lane of D.lanes) lane.layer.forEach((layer, i) => {
    if (layer === chosen) { start = Math.min(start, lane.start[i]); end = Math.max(end, lane.end[i]); }
  });
  if (end > start) look(start - (end - start) * 0.05, end + (end - start) * 0.05);
  $("over-time").scrollIntoView({behavior: "smooth"});
};
addEventListener("resize", later, whileShown);
whenChosen.push(later);
whenPainted.push(later);
