// The network from top to bottom, hot layers coloured, with a strip that shows all of it.
const NODE = 224, UNIT = 244, BOX = 40, RANK = 66, MARGIN = 16, STRIP = 26;
const G = D.network, graph = $("graph");
const hostTime = new Map(D.host.map(one => [one.name, (one.seconds ?? one.estimate ?? 0) * 1e6]));
const spent = node => node.layer !== null ? D.layers[node.layer].microseconds : hostTime.get(node.subgraph) || 0;
const spentInAll = Math.max(1e-9, G.nodes.reduce((sum, node) => sum + spent(node), 0));
const spentMost = Math.max(1e-9, ...G.nodes.map(spent));
const [graphWidth, graphHeight] = [G.width * UNIT + NODE + 2 * MARGIN, G.ranks * RANK + 2 * MARGIN];
const nodeX = node => MARGIN + NODE / 2 + node.at[0] * UNIT, nodeY = node => MARGIN + node.at[1] * RANK;
const nodeOfLayer = new Map();
const nodeBoxes = [];

function shade(node) {
  const how = $("paint").value, layer = node.layer === null ? null : D.layers[node.layer];
  if (how === "time") return heat(Math.sqrt(spent(node) / spentMost));
  if (!layer) return heat(0);
  if (how === "array") return heat(layer.utilization);
  const words = css(layer.limited_by || "waiting"), value = parseInt(words.slice(1), 16);
  return [value >> 16, value >> 8 & 255, value & 255];
}
const readable = ([r, g, b]) => 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#18212f" : "#f4f7fb";
function describeNode(node) {
  if (node.layer !== null) return [...describe(node.layer), [node.kind, node.type].filter(word => word).join("  ")];
  const lines = [node.name, [node.kind, node.type].filter(word => word).join("  ")];
  if (hostTime.get(node.subgraph)) lines.push(micro(hostTime.get(node.subgraph)) + " on the CPU");
  return lines;
}
function curve(points) {
  return points.map(([x, y], i) => {
    if (!i) return "M" + x + " " + y;
    const [a, b] = points[i - 1], middle = (b + y) / 2;
    return "C" + a + " " + middle + " " + x + " " + middle + " " + x + " " + y;
  }).join("");
}
function drawGraph() {
  graph.setAttribute("width", graphWidth);
  graph.setAttribute("height", graphHeight);
  G.edges.forEach(([from, to, bends]) => {
    const a = G.nodes[from], b = G.nodes[to], points = [[nodeX(a), nodeY(a) + BOX]];
    for (const [x, rank] of bends) {
      const at = MARGIN + NODE / 2 + x * UNIT, top = MARGIN + rank * RANK;
      points.push([at, top], [at, top + BOX]);
    }
    draw(graph, "path", {d: curve([...points, [nodeX(b), nodeY(b)]])});
  });
  G.nodes.forEach((node, i) => {
    const group = draw(graph, "g", {class: "node", transform: "translate(" + (nodeX(node) - NODE / 2) + "," + nodeY(node) + ")"});
    const end = node.device === "input" || node.device === "output";
    const box = draw(group, "rect", {width: NODE, height: BOX, rx: end ? BOX / 2 : 7, "stroke-dasharray": node.device === "npu" ? "none" : "4 3"});
    const name = draw(group, "text", {x: NODE / 2, y: 17, "text-anchor": "middle", "font-size": 11.5, "font-weight": 600}, shorten(node.name, 28));
    const part = spent(node) / spentInAll, where = node.device === "cpu" ? "CPU: " : "";
    const words = where + shorten(node.kind, 24) + (spent(node) ? "  ·  " + percent(part) : end && node.type ? "  ·  " + shorten(node.type, 18) : "");
    const note = draw(group, "text", {x: NODE / 2, y: 32, "text-anchor": "middle", "font-size": 11}, words);
    group.onpointermove = event => hint(event, describeNode(node));
    group.onpointerleave = event => hint(event, null);
    if (node.layer !== null) { nodeOfLayer.set(node.layer, i); group.onclick = () => choose(node.layer); }
    nodeBoxes.push([group, box, name, note]);
  });
}
function paintGraph() {
  G.nodes.forEach((node, i) => {
    const [, box, ...words] = nodeBoxes[i], color = shade(node);
    box.style.fill = "rgb(" + color + ")";
    for (const word of words) word.style.fill = readable(color);
  });
  paintStrip();
}
const scroller = $("graph-scroll"), strip = $("overview");
function paintStrip() {
  const height = scroller.clientHeight, [g] = prepare(strip, height), each = height / Math.max(1, G.ranks);
  g.clearRect(0, 0, STRIP, height);
  for (const node of G.nodes) {
    g.fillStyle = "rgb(" + shade(node) + ")";
    const x = G.width ? node.at[0] / (G.width + 1) * (STRIP - 6) : 0;
    g.fillRect(3 + x, node.at[1] * each, Math.max(3, (STRIP - 6) / (G.width + 1)), Math.max(1, each - (each > 4 ? 1 : 0)));
  }
  g.strokeStyle = css("accent");
  g.lineWidth = 2;
  const scale = height / graphHeight;
  if (graphHeight > height) g.strokeRect(1, scroller.scrollTop * scale, STRIP - 2, Math.max(4, height * scale));
}
const goTo = y => { scroller.scrollTop = y - scroller.clientHeight / 2; };
function showNode(layer) {
  const i = nodeOfLayer.get(layer);
  if (i === undefined) return;
  goTo(nodeY(G.nodes[i]));
  scroller.scrollLeft = nodeX(G.nodes[i]) - scroller.clientWidth / 2;
}
scroller.onscroll = () => requestAnimationFrame(paintStrip);
strip.onpointerdown = strip.onpointermove = event => { if (event.buttons) goTo(event.offsetY / scroller.clientHeight * graphHeight); };
$("paint").onchange = paintGraph;
$("chosen-graph").onclick = () => { showNode(chosen); $("network").scrollIntoView({behavior: "smooth"}); };
whenPainted.push(paintGraph);
let ringed = -1;
whenChosen.push(() => {
  if (ringed >= 0) nodeBoxes[ringed][0].classList.remove("chosen");
  ringed = chosen >= 0 && nodeOfLayer.has(chosen) ? nodeOfLayer.get(chosen) : -1;
  if (ringed < 0) return;
  nodeBoxes[ringed][0].classList.add("chosen");
  const y = nodeY(G.nodes[ringed]);
  if (y < scroller.scrollTop || y + BOX > scroller.scrollTop + scroller.clientHeight) showNode(chosen);
});

const hottest = G.nodes.filter(node => spent(node) > 0).sort((a, b) => spent(b) - spent(a)).slice(0, 11);
for (const node of hottest) {
  const item = make("li"), line = make("div", undefined, "split"), part = spent(node) / spentInAll;
  const name = make("span", shorten(node.name, 27));
  name.title = node.name;
  line.append(name, make("span", percent(part), "soft"));
  item.append(line, bar(spent(node) / spentMost));
  item.onclick = () => {
    goTo(nodeY(node));
    scroller.scrollLeft = nodeX(node) - scroller.clientWidth / 2;
    if (node.layer !== null && node.layer !== chosen) choose(node.layer);
  };
  $("hottest").append(item);
}

drawGraph();
drawTimeline();
drawMemory();
drawRoofline();
paintGraph();
scroller.scrollLeft = (graphWidth - scroller.clientWidth) / 2;
