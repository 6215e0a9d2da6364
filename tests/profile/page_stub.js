// Runs the script of a report in a stub of a browser: what it draws is counted, a header is clicked, the timeline hovered.
// node page_stub.js REPORT.html prints what was seen as JSON.
"use strict";
const text = require("fs").readFileSync(process.argv[2], "utf8");
const data = /<script type="application\/json" id="data">([^]*?)<\/script>/.exec(text)[1];
const script = /<script>([^]*?)<\/script>/.exec(text)[1];
const drawn = {rects: 0, texts: []};

class Element {
  constructor(tag) {
    this.tag = tag; this.children = []; this.style = {}; this.attributes = {}; this.own = ""; this.className = "";
    this.hidden = false; this.clientWidth = 1000; this.offsetWidth = 50; this.offsetHeight = 20;
    this.classList = {toggle: (name, on) => { if (on) this.className = name; }};
  }
  get textContent() { return this.own + this.children.map(c => typeof c === "string" ? c : c.textContent).join(""); }
  set textContent(value) { this.own = String(value); this.children = []; }
  get value() { return this.tag === "select" ? this.children[0].textContent : ""; }
  append(...items) { this.children.push(...items); }
  replaceChildren(...items) { this.children = items; }
  setAttribute(name, value) { this.attributes[name] = String(value); }
  removeAttribute(name) { delete this.attributes[name]; }
  setPointerCapture() {}
  getContext() {
    return {setTransform() {}, clearRect() {}, fillRect(...box) {
      if (!box.every(Number.isFinite)) throw new Error("a rectangle is not finite: " + box);
      drawn.rects++;
    }, fillText(words) { drawn.texts.push(String(words)); }};
  }
}
const byId = {};
for (const [, tag, id] of text.matchAll(/<(\w+)[^>]* id="(\w+)"/g)) byId[id] = new Element(tag);
byId.data.textContent = data;
global.document = {getElementById: id => byId[id], createElement: tag => new Element(tag), createElementNS: (ns, tag) => new Element(tag)};
global.window = global;
global.innerWidth = 1200;
global.innerHeight = 800;
global.addEventListener = () => {};
global.requestAnimationFrame = f => f();
new Function(script)();

const rows = id => byId[id].children.length ? byId[id].children[1].children.map(row => row.children.map(cell => cell.textContent)) : [];
const header = byId.layers.children[0].children[0].children.map(cell => cell.textContent);
const before = rows("layers");
const click = name => byId.layers.children[0].children[0].children[header.indexOf(name)].children[0].onclick();
click("cycles");
const sorted = rows("layers");
click("cycles");
const reversed = rows("layers");
const start = drawn.rects;
const canvas = byId.timeline;
const hovered = new Set();
for (let y = 5; y < 4 * 24; y += 24) for (let x = 96; x < 1000; x += 3) {
  canvas.onpointermove({offsetX: x, offsetY: y, clientX: x, clientY: y});
  if (byId.tip.style.display === "block") hovered.add(byId.tip.textContent);
}
const places = new Set();
for (let y = 1; y < 260; y += 2) {
  byId.memory.onpointermove({offsetX: 600, offsetY: y, clientX: 0, clientY: 0});
  if (byId.tip.style.display === "block") places.add(byId.tip.textContent);
}
canvas.onwheel({offsetX: 500, deltaY: -800, preventDefault() {}});
const zoomed = drawn.rects - start;
byId.layers.children[1].children[0].onclick();
const dots = byId.roofline.children.filter(e => e.tag === "circle");
for (const dot of dots) for (const key of ["cx", "cy", "r"]) if (!Number.isFinite(+dot.attributes[key])) throw new Error("a dot is not finite");
console.log(JSON.stringify({
  title: byId.title.textContent, header, before, sorted, reversed, hovered: [...hovered], places: [...places], zoomed,
  rects: start, dots: dots.length, lanes: drawn.texts.filter(t => /^(\d+ )?(load|store|matrix|vector)$/.test(t)).slice(0, 4),
  chosen: byId.layers.children[1].children.filter(row => row.className === "chosen").length,
}));
