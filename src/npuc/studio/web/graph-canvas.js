// The drawing of a graph: pan, zoom, fold, choose. Only what is in sight is drawn, and text only where it can be read.
class GraphCanvas {
  constructor(place, label, onChoose) {
    this.canvas = element("canvas", {class: "graph-canvas", tabindex: "0", role: "application", "aria-label": label + ": arrows move between layers, Enter folds, plus and minus zoom"});
    this.place = place;
    place.append(this.canvas);
    this.onChoose = onChoose;
    this.folded = null;
    this.chosen = -1;
    this.colour = () => null;
    this.scale = 1; this.x = 0; this.y = 0;
    this.waiting = false;
    this.frames = 0;
    this.listen();
    // A drawing that nobody has moved stays fitted to its place.
    this.moved = false;
    new ResizeObserver(() => { if (this.folded && !this.moved) this.fit(); else this.later(); }).observe(place);
  }
  show(folded) {
    this.folded = folded;
    this.drawing = flattened(folded);
    this.byTensor = new Map();
    folded.graph.nodes.forEach((node, i) => { for (const name of node.tensors || [node.name]) if (!this.byTensor.has(name)) this.byTensor.set(name, i); });
    this.fit();
  }
  update() { this.drawing = flattened(this.folded); this.later(); }
  fit() {
    const width = this.place.clientWidth || 800, height = this.place.clientHeight || 600;
    // A deep network is drawn as wide as it is and from its top; fitting its height would leave a line.
    this.scale = Math.max(0.25, Math.min(1.1, (width - 24) / this.drawing.width, Math.max(0.75, (height - 24) / this.drawing.height)));
    this.x = (width - this.drawing.width * this.scale) / 2;
    this.y = 12;
    this.moved = false;
    this.later();
  }
  later() {
    if (this.waiting || !this.folded) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.draw(); });
  }
  draw() {
    const width = this.place.clientWidth, height = this.place.clientHeight, pen = crisp(this.canvas, width, height);
    this.frames += 1;
    pen.clearRect(0, 0, width, height);
    const left = -this.x / this.scale, top = -this.y / this.scale, right = left + width / this.scale, bottom = top + height / this.scale;
    pen.translate(this.x, this.y);
    pen.scale(this.scale, this.scale);
    const inSight = box => box.x < right && box.x + box.width > left && box.y < bottom && box.y + box.height > top;
    const colours = {line: style("line"), card: style("card"), ink: style("ink"), soft: style("soft"), accent: style("accent"), waiting: style("waiting"), hover: style("hover")};
    const readable = this.scale > 0.35;
    for (const box of this.drawing.boxes) if (box.open && inSight(box)) this.drawScope(pen, box, colours, readable);
    pen.strokeStyle = colours.waiting;
    for (const line of this.drawing.lines) {
      if (line.left > right || line.right < left || line.top > bottom || line.bottom < top) continue;
      pen.lineWidth = Math.min(4, 1 + Math.log2(line.count));
      pen.beginPath();
      line.points.forEach(([x, y], i) => {
        if (!i) { pen.moveTo(x, y); return; }
        const [a, b] = line.points[i - 1], middle = (b + y) / 2;
        pen.bezierCurveTo(a, middle, x, middle, x, y);
      });
      pen.stroke();
    }
    for (const box of this.drawing.boxes) if (!box.open && inSight(box)) this.drawBox(pen, box, colours, readable);
  }
  drawScope(pen, box, colours, readable) {
    pen.fillStyle = colours.hover;
    pen.globalAlpha = 0.5;
    roundedBox(pen, box, 8);
    pen.fill();
    pen.globalAlpha = 1;
    pen.strokeStyle = colours.line;
    pen.lineWidth = 1;
    pen.stroke();
    if (!readable) return;
    pen.fillStyle = colours.soft;
    pen.font = "600 12px system-ui, sans-serif";
    pen.fillText("− " + cut(this.folded.graph.scopes[box.number].name, Math.floor(box.width / 8)), box.x + 10, box.y + 17);
  }
  drawBox(pen, box, colours, readable) {
    const graph = this.folded.graph, node = box.isScope ? null : graph.nodes[box.number];
    const fill = this.colour(box, this.folded), chosen = !box.isScope ? box.number === this.chosen : this.folded.members[box.number].includes(this.chosen);
    const end = node && (node.device === "input" || node.device === "output");
    roundedBox(pen, box, end ? box.height / 2 : 6);
    pen.fillStyle = fill ? rgb(fill) : colours.card;
    pen.fill();
    pen.strokeStyle = chosen ? colours.accent : colours.line;
    pen.lineWidth = chosen ? 3 : 1;
    pen.setLineDash(node && node.device === "cpu" ? [4, 3] : []);
    pen.stroke();
    pen.setLineDash([]);
    if (!readable) return;
    const ink = fill ? inkOn(fill) : colours.ink;
    pen.fillStyle = ink;
    pen.textAlign = "center";
    const middle = box.x + box.width / 2, most = box.width - 12;
    pen.font = "600 11.5px system-ui, sans-serif";
    const lower = box.y + (box.height - BOX.height) / 2;
    pen.fillText(fitted(pen, box.isScope ? "+ " + graph.scopes[box.number].name : this.folded.shortName(box.number), most), middle, lower + 15);
    pen.font = "11px system-ui, sans-serif";
    pen.fillText(fitted(pen, box.isScope ? count(this.folded.members[box.number].length) + " layers" : [node.kind, plainType(node.type)].filter(word => word).join("  "), most), middle, lower + 29);
    pen.textAlign = "left";
  }
  at(event) {
    const x = (event.offsetX - this.x) / this.scale, y = (event.offsetY - this.y) / this.scale;
    let inner = null;
    for (const box of this.drawing.boxes) if (x >= box.x && x <= box.x + box.width && y >= box.y && y <= box.y + box.height) inner = box;
    return inner;
  }
  zoom(factor, x = this.place.clientWidth / 2, y = this.place.clientHeight / 2) {
    const scale = Math.max(0.02, Math.min(4, this.scale * factor));
    this.x = x - (x - this.x) * scale / this.scale;
    this.y = y - (y - this.y) * scale / this.scale;
    this.scale = scale;
    this.moved = true;
    this.later();
  }
  // Folds or unfolds a scope and keeps its box where it is on the screen.
  fold(scope) {
    this.moved = true;
    const before = this.drawing.boxes.find(box => box.isScope && box.number === scope);
    this.folded.toggle(scope);
    this.drawing = flattened(this.folded);
    const now = this.drawing.boxes.find(box => box.isScope && box.number === scope);
    if (before && now) { this.x += (before.x + before.width / 2 - now.x - now.width / 2) * this.scale; this.y += (before.y - now.y) * this.scale; }
    this.later();
  }
  choose(node, goThere) {
    this.chosen = node;
    if (node >= 0 && goThere) {
      this.moved = true;
      this.folded.reveal(node);
      this.drawing = flattened(this.folded);
      const box = this.drawing.boxes.find(one => !one.isScope && one.number === node);
      if (box) {
        this.scale = Math.max(this.scale, 0.7);
        this.x = this.place.clientWidth / 2 - (box.x + box.width / 2) * this.scale;
        this.y = this.place.clientHeight / 2 - (box.y + box.height / 2) * this.scale;
      }
    }
    this.later();
  }
  chooseTensor(name, goThere) { this.choose(this.byTensor.has(name) ? this.byTensor.get(name) : -1, goThere); }
  listen() {
    const canvas = this.canvas;
    let grabbed = null;
    canvas.addEventListener("wheel", event => {
      event.preventDefault();
      if (event.ctrlKey || event.metaKey) this.zoom(Math.exp(-event.deltaY * 0.003), event.offsetX, event.offsetY);
      else { this.x -= event.deltaX; this.y -= event.deltaY; this.moved = true; this.later(); }
    }, {passive: false});
    canvas.onpointerdown = event => { grabbed = {x: event.offsetX, y: event.offsetY, fromX: this.x, fromY: this.y, moved: false}; canvas.setPointerCapture(event.pointerId); };
    canvas.onpointermove = event => {
      if (!grabbed) {
        const box = this.at(event);
        tip(event, box ? this.words(box) : null);
        canvas.style.cursor = box ? "pointer" : "grab";
        return;
      }
      if (!grabbed.moved && Math.hypot(event.offsetX - grabbed.x, event.offsetY - grabbed.y) < 4) return;
      grabbed.moved = this.moved = true;
      tip(event, null);
      this.x = grabbed.fromX + event.offsetX - grabbed.x;
      this.y = grabbed.fromY + event.offsetY - grabbed.y;
      this.later();
    };
    canvas.onpointerup = event => {
      const moved = grabbed && grabbed.moved;
      grabbed = null;
      if (moved) return;
      const box = this.at(event);
      if (box && box.isScope) this.fold(box.number);
      else if (box) this.onChoose(box.number);
    };
    canvas.onpointercancel = () => { grabbed = null; };
    canvas.onpointerleave = event => tip(event, null);
    canvas.onkeydown = event => {
      const does = {
        "+": () => this.zoom(1.4), "=": () => this.zoom(1.4), "-": () => this.zoom(1 / 1.4), "0": () => this.fit(),
        ArrowDown: () => this.step(1), ArrowUp: () => this.step(-1), ArrowRight: () => this.step(1), ArrowLeft: () => this.step(-1),
        Enter: () => { if (this.chosen >= 0) { const scope = this.folded.graph.nodes[this.chosen].scope; if (scope) this.fold(scope); } },
        PageDown: () => { this.y -= this.place.clientHeight * 0.8; this.later(); }, PageUp: () => { this.y += this.place.clientHeight * 0.8; this.later(); },
      }[event.key];
      if (does) { event.preventDefault(); does(); }
    };
  }
  step(by) {
    const most = this.folded.graph.nodes.length - 1, next = Math.max(0, Math.min(most, this.chosen < 0 ? (by > 0 ? 0 : most) : this.chosen + by));
    this.onChoose(next, true);
  }
  words(box) {
    const graph = this.folded.graph;
    if (box.isScope) return [graph.scopes[box.number].name, count(this.folded.members[box.number].length) + " layers; a click " + (box.open ? "folds" : "unfolds")];
    const node = graph.nodes[box.number], lines = [node.name, [node.kind, node.type].filter(word => word).join("  ")];
    if (node.macs) lines.push(count(node.macs) + " MACs");
    if (node.parameters) lines.push(count(node.parameters) + " parameters");
    return lines;
  }
}
// A type without its scales: 1x8x4x!npu.q<i8, ...> is 1x8x4xi8.
const plainType = type => type && type.replace(/!npu\.q<(\w+).*/, "$1");
// A text as wide as its place; letters differ too much in width to count them.
function fitted(pen, text, most) {
  const wide = pen.measureText(text).width;
  return wide <= most ? text : cut(text, Math.max(3, Math.floor(text.length * most / wide) - 1));
}
function roundedBox(pen, box, radius) {
  pen.beginPath();
  pen.roundRect(box.x, box.y, box.width, box.height, radius);
}
