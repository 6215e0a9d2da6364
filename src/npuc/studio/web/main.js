// The frame: which file, which view, what is chosen. The address keeps it, so that a reload or a bookmark comes back to it.
const view = byId("view");
const VIEWS = {graph: graphView, numbers: numbersView, picture: pictureView, time: timeView, placement: placementView, act: actView};
const PAINTS = {kind: "op", device: "device", bits: "bits", macs: "MACs", parameters: "parameters", time: "time", bytes: "bytes moved", sqnr: "SQNR", isolated: "SQNR alone", sensitivity: "sensitivity"};
const UNITS = {time: value => count(value, 2) + " µs", bytes: size};
let canvases = [], repaint = () => {};

async function graphView(place) {
  const paint = element("select", {id: "paint-by", onchange: () => { state.paint = paint.value; painted(); }}, ...Object.entries(PAINTS).map(([key, words]) => element("option", {value: key}, words)));
  paint.value = state.paint;
  const search = element("input", {type: "search", id: "find", placeholder: "Find a layer", "aria-label": "Find a layer", list: "layer-names"});
  const names = element("datalist", {id: "layer-names"}), legend = element("div", {class: "legend", id: "legend"});
  const tools = element("div", {class: "tools"}, element("label", {}, "Colour ", paint), search, names,
    element("button", {type: "button", onclick: () => canvases.forEach(one => { one.folded.openAll(); one.update(); one.fit(); })}, "Unfold all"),
    element("button", {type: "button", onclick: () => canvases.forEach(one => { one.folded.foldAll(); one.update(); one.fit(); })}, "Fold all"),
    element("button", {type: "button", "aria-label": "Zoom in", onclick: () => canvases.forEach(one => one.zoom(1.4))}, "+"),
    element("button", {type: "button", "aria-label": "Zoom out", onclick: () => canvases.forEach(one => one.zoom(1 / 1.4))}, "−"),
    element("button", {type: "button", onclick: () => canvases.forEach(one => one.fit())}, "Fit"));
  const panes = element("div", {class: "panes"}), details = element("div", {class: "card", id: "details", role: "region", "aria-label": "The layer that is chosen"}, element("p", {class: "soft"}, "Choose a layer: a click, or the arrow keys."));
  place.append(element("div", {class: "split"}, legend, tools), element("div", {class: "graph-frame"}, panes, details));
  const files = [state.a, ...(state.b && state.b !== state.a ? [state.b] : [])].filter(file => file);
  canvases = [];
  const values = {};
  const form = formShown(), frames = files.map(file => {
    const pane = element("div", {class: "pane"}), title = element("div", {class: "pane-title soft"}, file);
    panes.append(element("div", {class: "pane-frame"}, title, pane));
    const answer = ask("graph", {file, form});
    answer.catch(() => {});  // it is told where it is waited for
    return {file, pane, title, answer};
  });
  for (const {file, pane, title, answer} of frames) {
    const graph = await answer;
    if (!pane.isConnected) return;
    title.textContent = file + "  ·  " + graph.form + "  ·  " + count(graph.nodes.length) + " nodes";
    const canvas = new GraphCanvas(pane, file, (node, goThere) => choose(graph, file, node, goThere));
    canvas.file = file;
    canvas.show(new FoldedGraph(graph));
    canvases.push(canvas);
  }
  canvases.forEach(canvas => canvas.fit());
  // Nobody searches before there is something to see.
  const listed = canvases[0].folded.graph.nodes.slice(0, 3000);
  setTimeout(() => names.append(...listed.map(node => element("option", {value: node.name}))), 300);
  const choose = (graph, file, number, goThere) => {
    const node = graph.nodes[number], tensor = (node.tensors || [node.name])[0];
    state.layer = tensor;
    remember();
    for (const canvas of canvases) canvas.file === file ? canvas.choose(number, goThere) : canvas.chooseTensor(tensor, true);
    const figures = {};
    for (const [key, map] of Object.entries(values)) if (map instanceof Map && map.has(tensor)) figures[PAINTS[key]] = (UNITS[key] || (value => decibel(value) + " dB"))(map.get(tensor));
    attempt(() => showDetails(details, file, form, node, figures));
  };
  search.onchange = () => {
    const graph = canvases[0].folded.graph, wanted = search.value.toLowerCase();
    let number = graph.nodes.findIndex(node => node.name.toLowerCase() === wanted);
    if (number < 0) number = graph.nodes.findIndex(node => node.name.toLowerCase().includes(wanted));
    if (number >= 0) { choose(graph, canvases[0].file, number, true); say(""); } else say("No layer is called like " + search.value, true);
  };
  const painted = () => attempt(async () => {
    if ((state.paint === "time" || state.paint === "bytes") && !values.time) {
      const program = files.find(file => state.project.files.some(one => one.name === file && one.kind === "program"));
      if (!program) throw new Refusal({error: "Time and bytes moved are known of compiled models", fix: "Choose a .npu file, alone or beside this one"});
      const {layers} = await ask("time", {file: program});
      values.time = new Map(layers.map(layer => [layer.name, layer.microseconds]));
      values.bytes = new Map(layers.map(layer => [layer.name, layer.weights_in + layer.features_in + layer.features_out]));
    }
    if ((state.paint === "sqnr" || state.paint === "isolated") && !values.sqnr) {
      if (!state.b) throw new Refusal({error: "An error needs something to compare with", fix: "Choose a second form above"});
      const {layers} = await ask("compare", pairOf());
      values.sqnr = new Map(layers.map(layer => [layer.name, layer.sqnr]));
      values.isolated = new Map(layers.filter(layer => layer.isolated !== undefined).map(layer => [layer.name, layer.isolated]));
    }
    if (state.paint === "sensitivity" && !values.sensitivity) {
      say("Rounding each layer alone…");
      const answer = await ask("sensitivity", pairOf());
      values.sensitivity = new Map(answer.layers.map(layer => [layer.name, layer.sensitivity]));
      values.rounded = "only this layer as " + answer.types + ", on " + (answer.sample || "random numbers") + ", at the outputs";
    }
    say("");
    paintGraphs(values, legend);
  });
  repaint = painted;
  await painted();
  const kept = canvases.find(canvas => canvas.byTensor.has(state.layer));
  if (kept) choose(kept.folded.graph, kept.file, kept.byTensor.get(state.layer), true);
}

// What a box is worth under a colour: of a folded scope the sum of its times and sizes, and the worst of its errors.
function paintGraphs(values, legend) {
  const by = state.paint, sums = ["time", "bytes", "macs", "parameters"].includes(by), errors = ["sqnr", "isolated", "sensitivity"].includes(by);
  // Inputs and outputs are no layers: an output would show the time of the layer that makes it once more.
  const isEnd = node => node.device === "input" || node.device === "output";
  const often = new Map();
  if (!sums && !errors) for (const node of canvases.flatMap(canvas => canvas.folded.graph.nodes)) if (!isEnd(node) && node[by]) often.set(String(node[by]), (often.get(String(node[by])) || 0) + 1);
  const words = [...often.keys()].sort((a, b) => often.get(b) - often.get(a)), category = categories(words);
  // An error is good or bad by itself; how much a layer matters is told by the others.
  const known = by === "sensitivity" && values[by] ? [...values[by].values()].filter(value => typeof value === "number") : [];
  const [least, most] = known.length ? [Math.min(...known), Math.max(...known)] : [0, 50];
  for (const canvas of canvases) {
    const valueOf = node => isEnd(node) ? undefined : values[by] instanceof Map ? (values[by].get((node.tensors || [node.name])[0]) ?? values[by].get(node.name)) : node[by];
    const boxValue = (box, folded) => {
      const members = box.isScope ? folded.members[box.number].map(i => folded.graph.nodes[i]) : [folded.graph.nodes[box.number]];
      const known = members.map(valueOf).filter(value => value !== undefined && value !== "");
      if (!known.length) return undefined;
      if (sums) return known.reduce((sum, value) => sum + value, 0);
      if (errors) return Math.min(...known.map(worst));
      return new Set(known).size === 1 ? known[0] : undefined;
    };
    let largest = 1e-12;
    if (sums) for (const box of canvas.drawing.boxes) if (!box.open) largest = Math.max(largest, boxValue(box, canvas.folded) || 0);
    canvas.colour = (box, folded) => {
      const value = boxValue(box, folded);
      if (value === undefined) return null;
      if (sums) return mixed(dark() ? RAMP : [[246, 246, 250], ...RAMP.slice(1).reverse()], Math.sqrt(value / largest));
      if (errors) return mixed([...SIGNED].reverse(), (value - least) / (most - least || 1));
      return category.get(String(value)) || null;
    };
    canvas.later();
  }
  const entry = (colour, text) => { const dot = element("i", {class: "dot"}); dot.style.background = rgb(colour); return element("span", {}, dot, text); };
  const others = words.filter(word => words.length > CATEGORIES.length && category.get(word) === CATEGORIES.at(-1));
  legend.replaceChildren(...words.filter(word => !others.includes(word)).map(word => entry(category.get(word), word)),
    ...(others.length ? [entry(CATEGORIES.at(-1), others.length > 3 ? others.length + " others" : others.join(", "))] : []),
    ...(sums ? [element("span", {}, (dark() ? "bright" : "dark") + ": more " + PAINTS[by])] : errors ? [element("span", {}, by === "sensitivity" ? "orange: matters most (" + decibel(least) + " dB), blue: least (" + decibel(most) + " dB); " + values.rounded : "orange: 0 dB, blue: 50 dB and more")] : []));
}

function remember() {
  if (embedded) return;
  const kept = new URLSearchParams(Object.entries({a: state.a, b: state.b, form: state.form, tab: state.tab, layer: state.layer, paint: state.paint, sample: state.sample, part: state.tab === "act" ? state.part : ""}).filter(([, value]) => value));
  history.replaceState(null, "", "#" + kept);
}
let shown = 0;
async function render() {
  const number = ++shown;
  if (profileShown) { profileShown.end(); profileShown = null; }
  canvases = [];
  for (const tab of document.querySelectorAll("[role=tab]")) {
    const on = tab.dataset.tab === state.tab;
    tab.setAttribute("aria-selected", on);
    tab.tabIndex = on ? 0 : -1;
  }
  view.setAttribute("aria-labelledby", "tab-" + state.tab);
  // Only a float model has forms, and only its graph shows them.
  const formed = state.project.files.some(file => file.kind === "model" && (file.name === state.a || file.name === state.b));
  byId("form").value = formShown();
  byId("form-choice").hidden = state.tab !== "graph" || !formed;
  remember();
  say("");
  const inside = element("div", {class: "inside view-" + state.tab});
  view.replaceChildren(inside);
  view.dataset.ready = "";
  if (state.a) await attempt(() => VIEWS[state.tab](inside));
  else inside.append(element("p", {class: "empty"}, "This folder has no model yet: put one there, or start npuc studio with a folder or files."));
  if (number === shown) view.dataset.ready = state.tab;
}
function fillChoices() {
  const models = state.project.files.filter(file => ["model", "network", "program"].includes(file.kind));
  const fill = (choice, value, none) => {
    choice.replaceChildren(...(none ? [element("option", {value: ""}, "nothing")] : []), ...models.map(file => element("option", {value: file.name}, file.name)));
    choice.value = models.some(file => file.name === value) ? value : none ? "" : (models[0] || {name: ""}).name;
    return choice.value;
  };
  state.a = fill(byId("file-a"), state.a, false);
  state.b = fill(byId("file-b"), state.b, true);
}
async function refresh() {
  const project = await ask("project");
  const isNew = project.state !== state.project.state;
  state.project = project;
  if (!isNew) return;
  byId("project").textContent = project.name;
  document.title = project.name + " - npuc studio";
  const hadNone = !state.a;
  fillChoices();
  const inside = view.firstElementChild;
  if (hadNone && state.a && inside) { render(); return; }
  if (inside && inside.refreshed) inside.refreshed();
}
listeners.push(changes => { if (["a", "b", "form", "tab"].some(key => key in changes)) { fillChoices(); render(); } else remember(); });
byId("file-a").onchange = event => change({a: event.target.value});
byId("file-b").onchange = event => change({b: event.target.value});
byId("form").onchange = event => change({form: event.target.value});
const tabs = [...document.querySelectorAll("[role=tab]")];
tabs.forEach((tab, i) => {
  tab.onclick = () => change({tab: tab.dataset.tab});
  tab.onkeydown = event => {
    const by = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (!by) return;
    const next = tabs[(i + by + tabs.length) % tabs.length];
    next.focus();
    change({tab: next.dataset.tab});
  };
});
followTheme(() => { if (profileShown) profileShown.repaint(); if (state.tab === "graph" && canvases.length) repaint(); if (["numbers", "picture", "act"].includes(state.tab)) render(); });
// An image or tensors dropped on the page become the sample.
addEventListener("dragover", event => event.preventDefault());
addEventListener("drop", event => {
  event.preventDefault();
  const file = event.dataTransfer.files[0];
  if (!file || embedded) return;
  attempt(async () => {
    const name = await upload(file);
    state.sample = name;
    const isImage = state.project.files.some(one => one.name === name && one.kind === "image");
    // An image is something to look at; what it does to layers is one tab away.
    if (isImage && state.tab !== "numbers") change({tab: "picture"});
    else if (state.tab === "numbers") render();
    say("The sample is " + name);
  });
});
attempt(async () => {
  const kept = embedded ? embedded.start : Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  for (const key of ["a", "b", "form", "tab", "layer", "paint", "sample", "part"]) if (kept[key]) state[key] = kept[key];
  if (kept.decode) [pictured.decode, pictured.options] = [kept.decode.split(":")[0], kept.decode.split(":").slice(1).join(":")];
  if (kept.labels) pictured.labels = kept.labels;
  if (kept.models) pictured.models = JSON.parse(kept.models);
  if (!(state.tab in VIEWS)) state.tab = "graph";
  await refresh();
  await render();
  if (!embedded) setInterval(() => { if (!document.hidden) attempt(refresh); }, 2000);
});
