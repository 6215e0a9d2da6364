// Where boxes and edges are. dagre places the members of one scope at a time: a folded scope is a box, an open one a box as
// large as what is in it. Runs of boxes without branches are placed as one tall box, which saves dagre most of its work:
//
//     a → b → c → add        [a b c] → add
//     └─────────────┘   →    └─────────┘
const BOX = {width: 176, height: 36, gap: 18, rank: 30, pad: 14, title: 26};

function layoutScope(folded, scope) {
  const known = folded.layouts.get(scope);
  if (known) return known;
  const {nodes, scopes} = folded.children[scope], boxes = new Map();
  for (const i of nodes) boxes.set("n" + i, {width: BOX.width, height: BOX.height});
  for (const i of scopes) {
    const inner = folded.open.has(i) ? layoutScope(folded, i) : null;
    boxes.set("s" + i, inner ? {width: inner.width, height: inner.height, inner} : {width: BOX.width, height: BOX.height + 8});
  }
  const edges = folded.edgesAt[scope];
  const border = edges.some(edge => edge.from === "in" || edge.to === "out");
  if (border) for (const end of ["in", "out"]) boxes.set(end, {width: 1, height: 1});
  placeBoxes(boxes, edges);
  // dagre counts from the middle of boxes and may leave a margin.
  let left = Infinity, top = Infinity, right = -Infinity, bottom = -Infinity;
  for (const box of boxes.values()) {
    left = Math.min(left, box.x); top = Math.min(top, box.y);
    right = Math.max(right, box.x + box.width); bottom = Math.max(bottom, box.y + box.height);
  }
  if (!boxes.size) { left = top = 0; right = BOX.width; bottom = 0; }
  const dx = BOX.pad - left, dy = (scope ? BOX.title : 0) + BOX.pad - top;
  for (const box of boxes.values()) { box.x += dx; box.y += dy; }
  const lines = edges.map(edge => ({
    from: edge.from, to: edge.to, count: edge.count,
    points: routed(boxes.get(edge.from), boxes.get(edge.to), edge.bends, dx, dy),
  }));
  const result = {
    boxes, lines, width: Math.max(right - left + 2 * BOX.pad, scope ? 90 : 0), height: bottom - top + 2 * BOX.pad + (scope ? BOX.title : 0),
  };
  // What enters or leaves goes on to where the edge outside ends: the middle of the border.
  for (const line of lines) {
    if (line.from === "in") line.points.unshift([result.width / 2, 0]);
    if (line.to === "out") line.points.push([result.width / 2, result.height]);
  }
  folded.layouts.set(scope, result);
  return result;
}

// An edge leaves in the middle of the lower side and arrives in the middle of the upper one; between, it follows dagre.
function routed(from, to, bends, dx, dy) {
  const begin = [from.x + from.width / 2, from.y + from.height], end = [to.x + to.width / 2, to.y];
  const between = (bends || []).map(([x, y]) => [x + dx, y + dy]).filter(([, y]) => y > begin[1] + 2 && y < end[1] - 2);
  return [begin, ...between, end];
}

function placeBoxes(boxes, edges) {
  const after = new Map([...boxes.keys()].map(name => [name, []])), before = new Map([...boxes.keys()].map(name => [name, []]));
  for (const edge of edges) { after.get(edge.from).push(edge.to); before.get(edge.to).push(edge.from); }
  const single = (from, to) => after.get(from).length === 1 && before.get(to).length === 1;
  const runOf = new Map(), runs = [];
  for (const name of boxes.keys()) {
    if (runOf.has(name)) continue;
    const reads = before.get(name);
    if (reads.length === 1 && single(reads[0], name)) continue;
    const run = [name];
    for (let next = after.get(name)[0]; next !== undefined && single(run[run.length - 1], next) && !run.includes(next); next = after.get(next)[0]) run.push(next);
    runs.push(run);
    run.forEach(member => runOf.set(member, runs.length - 1));
  }
  const drawing = new dagre.graphlib.Graph();
  drawing.setGraph({ranksep: BOX.rank, nodesep: BOX.gap, ranker: "tight-tree"});
  drawing.setDefaultEdgeLabel(() => ({}));
  runs.forEach((run, i) => drawing.setNode(String(i), {
    width: Math.max(...run.map(name => boxes.get(name).width)),
    height: run.reduce((sum, name) => sum + boxes.get(name).height, 0) + BOX.rank * (run.length - 1),
  }));
  for (const edge of edges) if (runOf.get(edge.from) !== runOf.get(edge.to)) drawing.setEdge(String(runOf.get(edge.from)), String(runOf.get(edge.to)));
  if (runs.length > 1) dagre.layout(drawing);
  runs.forEach((run, i) => {
    const {x = 0, y = 0, height} = drawing.node(String(i));
    let top = y - height / 2;
    for (const name of run) {
      const box = boxes.get(name);
      box.x = x - box.width / 2;
      box.y = top;
      top += box.height + BOX.rank;
    }
  });
  for (const edge of edges) {
    const line = runOf.get(edge.from) === runOf.get(edge.to) ? null : drawing.edge(String(runOf.get(edge.from)), String(runOf.get(edge.to)));
    edge.bends = line && line.points ? line.points.map(point => [point.x, point.y]) : [];
  }
}

// All visible boxes and lines in the coordinates of the whole drawing.
function flattened(folded) {
  const whole = layoutScope(folded, 0), boxes = [], lines = [];
  const walk = (layout, dx, dy) => {
    for (const line of layout.lines) {
      const points = line.points.map(([x, y]) => [x + dx, y + dy]);
      const xs = points.map(([x]) => x), ys = points.map(([, y]) => y);
      lines.push({points, count: line.count, left: Math.min(...xs), right: Math.max(...xs), top: Math.min(...ys), bottom: Math.max(...ys)});
    }
    for (const [name, box] of layout.boxes) {
      if (name === "in" || name === "out") continue;
      const number = Number(name.slice(1)), isScope = name[0] === "s";
      boxes.push({x: box.x + dx, y: box.y + dy, width: box.width, height: box.height, number, isScope, open: Boolean(box.inner)});
      if (box.inner) walk(box.inner, box.x + dx, box.y + dy);
    }
  };
  walk(whole, 0, 0);
  return {boxes, lines, width: whole.width, height: whole.height};
}
