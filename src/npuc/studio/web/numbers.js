// Two forms on one sample: which layer is wrong first, and how one tensor looks in both.
const worst = value => typeof value === "number" ? value : value === "inf" ? 1e9 : -1e9;
const opOf = row => row.kind.replace(/^(npu|top)\./, "");
const GOOD_DECIBELS = 20;

function sampleChoice(onChange) {
  const choice = element("select", {id: "sample", onchange: () => { state.sample = choice.value; onChange(); }}, element("option", {value: ""}, "random numbers"));
  for (const file of state.project.files) if (file.kind === "image" || file.kind === "tensors") choice.append(element("option", {value: file.name}, file.name));
  choice.value = state.sample;
  return element("label", {}, "Sample ", choice);
}
const pairOf = () => ({reference: state.b, other: state.a, sample: state.sample});

async function numbersView(place) {
  if (!state.b) { place.append(element("p", {class: "empty"}, "Choose a second form above, such as the float network that this one was made of.")); return; }
  const head = element("div", {class: "split"}, element("h2", {}, cut(state.a, 40) + " against " + cut(state.b, 40)), element("div", {class: "tools"}, sampleChoice(() => render()), fileButton("Add a sample", name => { state.sample = name; change({tab: "numbers"}); })));
  const body = element("div", {class: "numbers"});
  place.append(head, body);
  const render = () => attempt(async () => {
    body.replaceChildren(element("p", {class: "soft"}, "Running both…"));
    const {layers} = await ask("compare", pairOf());
    say("");
    if (!body.isConnected) return;
    const first = layers.find(layer => worst(layer.sqnr) < GOOD_DECIBELS);
    const alone = layers.filter(layer => layer.isolated !== undefined).sort((a, b) => worst(a.isolated) - worst(b.isolated))[0];
    const least = [...layers].sort((a, b) => worst(a.sqnr) - worst(b.sqnr))[0];
    const tensor = element("div", {class: "card", id: "tensor", "aria-live": "polite"}, element("p", {class: "soft"}, "Choose a layer."));
    const open = layer => { change({layer: layer.name}); attempt(() => showTensor(tensor, layer.name, 0)); mark(layer.name); };
    const verdict = element("p", {id: "verdict"});
    if (first) verdict.append("The first layer below " + GOOD_DECIBELS + " dB is ", element("button", {type: "button", class: "link", onclick: () => open(first)}, first.name), " (" + decibel(first.sqnr) + " dB). ");
    else verdict.append("No layer is below " + GOOD_DECIBELS + " dB" + (least ? "; the least is " : ". "), ...(least ? [element("button", {type: "button", class: "link", onclick: () => open(least)}, least.name), " (" + decibel(least.sqnr) + " dB). "] : []));
    if (alone) verdict.append("By itself, the worst is ", element("button", {type: "button", class: "link", onclick: () => open(alone)}, alone.name), " (" + decibel(alone.isolated) + " dB on exact inputs).");
    const columns = [
      ["layer", row => cut(row.name, 46), row => row.name, "text name"], ["op", row => opOf(row), opOf, "text"], ["type", row => row.type, row => row.type, "text"],
      ["SQNR dB", row => decibel(row.sqnr), row => worst(row.sqnr)], ["alone dB", row => decibel(row.isolated), row => row.isolated === undefined ? 1e9 : worst(row.isolated)],
      ["cosine", row => Number(row.cosine).toFixed(6), row => worst(row.cosine)], ["largest error", row => Number(row.max_error).toPrecision(3), row => worst(row.max_error)],
      ["saturated", row => row.type === "f32" ? "" : share(row.saturation), row => worst(row.saturation)], ["range used", row => row.type === "f32" ? "" : share(row.range_use), row => worst(row.range_use)],
    ];
    const {table, lines} = sortedTable(layers, columns, open, "Errors of layers");
    const mark = name => layers.forEach((layer, i) => lines[i].classList.toggle("chosen", layer.name === name));
    body.replaceChildren(verdict, decibelPlot(layers, open), element("div", {class: "card flush scroll"}, table), tensor);
    const kept = layers.find(layer => layer.name === state.layer) || first || alone || least;
    if (kept) { attempt(() => showTensor(tensor, kept.name, 0)); mark(kept.name); }
  });
  await render();
}

// SQNR over the layers in the order in which they run: accumulated as a line, each layer alone as dots.
function decibelPlot(layers, open) {
  const canvas = element("canvas", {class: "plot", role: "img", "aria-label": "SQNR of layers in the order in which they run"});
  const words = "line: with all layers before" + (layers.some(layer => layer.isolated !== undefined) ? "; squares: the layer alone on exact inputs" : "");
  const frame = element("div", {class: "card flush"}, canvas, element("p", {class: "soft caption"}, words)), height = 150;
  const most = 60, y = value => 10 + (1 - Math.max(0, Math.min(most, worst(value))) / most) * (height - 30);
  const x = (i, width) => 40 + i / Math.max(1, layers.length - 1) * (width - 52);
  const draw = () => {
    const width = frame.clientWidth || 900, pen = crisp(canvas, width, height);
    pen.font = "11px system-ui, sans-serif";
    for (const mark of [0, 20, 40, 60]) {
      pen.fillStyle = style("grid");
      pen.fillRect(36, y(mark), width, 1);
      pen.fillStyle = style("soft");
      pen.fillText(mark + " dB", 2, y(mark) + 4);
    }
    pen.strokeStyle = style("matrix");
    pen.lineWidth = 1.6;
    pen.beginPath();
    layers.forEach((layer, i) => pen[i ? "lineTo" : "moveTo"](x(i, width), y(layer.sqnr)));
    pen.stroke();
    pen.fillStyle = style("DMA");
    layers.forEach((layer, i) => { if (layer.isolated !== undefined) pen.fillRect(x(i, width) - 2, y(layer.isolated) - 2, 4, 4); });
  };
  canvas.onclick = event => { const i = Math.round((event.offsetX - 40) / (frame.clientWidth - 52) * (layers.length - 1)); if (layers[i]) open(layers[i]); };
  canvas.onpointermove = event => {
    const i = Math.round((event.offsetX - 40) / (frame.clientWidth - 52) * (layers.length - 1)), layer = layers[i];
    tip(event, layer ? [layer.name, decibel(layer.sqnr) + " dB", layer.isolated === undefined ? "" : decibel(layer.isolated) + " dB alone"].filter(line => line) : null);
  };
  canvas.onpointerleave = event => tip(event, null);
  new ResizeObserver(draw).observe(frame);
  return frame;
}

async function showTensor(place, name, channel) {
  const answer = await ask("tensor", {...pairOf(), name, channel: channel || undefined});
  if (!place.isConnected) return;
  const [reference, ours] = answer.maps, parts = [];
  const figure = (title, map) => element("figure", {}, element("figcaption", {}, title), map);
  if (reference) parts.push(figure(cut(state.b, 30), heatMap(reference, answer.low, answer.high, RAMP)));
  parts.push(figure(cut(state.a, 30), heatMap(ours, answer.low, answer.high, RAMP)));
  if (reference) {
    const delta = ours.map((row, y) => row.map((value, x) => typeof value === "number" && typeof reference[y][x] === "number" ? value - reference[y][x] : "nan"));
    const most = Math.max(1e-12, ...delta.flat().map(value => typeof value === "number" ? Math.abs(value) : 0));
    parts.push(figure("difference, ±" + most.toPrecision(3), heatMap(delta, -most, most, SIGNED)));
  }
  for (const part of parts) part.querySelector("canvas").setAttribute("aria-label", part.textContent + " of " + name);
  const head = element("div", {class: "split"}, element("h2", {}, name), element("div", {class: "tools"}, answer.shape.join(" × ")));
  if (answer.channels > 1) {
    const slider = element("input", {type: "range", min: 0, max: answer.channels - 1, value: answer.channel, "aria-label": "Channel", onchange: () => attempt(() => showTensor(place, name, Number(slider.value)))});
    head.lastChild.append(" channel ", slider, String(answer.channel));
  }
  const errors = answer.channel_errors && answer.channel_errors.length > 1 ? channelBars(answer, value => attempt(() => showTensor(place, name, value))) : null;
  place.replaceChildren(head, element("div", {class: "maps"}, ...parts), element("div", {class: "maps"}, figure("values, logarithmic", histogram(answer.histograms, answer.low, answer.high)), ...(errors ? [figure("SQNR of channels", errors)] : [])));
}

function channelBars(answer, pick) {
  const width = 420, height = 90, canvas = element("canvas", {class: "histogram", role: "img", "aria-label": "SQNR of each channel"});
  canvas.style.width = width + "px";
  const pen = crisp(canvas, width, height), values = answer.channel_errors.map(worst), step = width / values.length;
  values.forEach((value, i) => {
    const tall = Math.max(2, Math.min(1, Math.max(0, value) / 60) * (height - 4));
    pen.fillStyle = value < GOOD_DECIBELS ? style("DMA") : style("matrix");
    pen.fillRect(i * step, height - tall, Math.max(1, step - 0.5), tall);
  });
  const at = event => Math.min(values.length - 1, Math.floor(event.offsetX / step));
  canvas.onclick = event => pick(at(event));
  canvas.onpointermove = event => tip(event, ["channel " + at(event), decibel(answer.channel_errors[at(event)]) + " dB"]);
  canvas.onpointerleave = event => tip(event, null);
  return canvas;
}
