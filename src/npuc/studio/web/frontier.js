// Accuracy over cycles: every program of the project is a point, and a point can be opened. More points are compiled as jobs.
async function frontierView(place) {
  const floats = state.project.files.filter(file => file.kind === "model");
  const reference = element("select", {id: "frontier-reference", onchange: () => show()}, ...floats.map(file => element("option", {value: file.name}, file.name)));
  reference.value = [state.b, state.a].find(name => floats.some(file => file.name === name)) || (floats[0] || {name: ""}).name;
  const sample = element("select", {id: "frontier-sample", onchange: () => show()}, element("option", {value: ""}, "random numbers"), ...state.project.files.filter(file => file.kind === "tensors" || file.kind === "image").map(file => element("option", {value: file.name}, file.name)));
  sample.value = state.sample;
  const body = element("div"), measure = element("select", {id: "frontier-measure", onchange: () => { state.measure = measure.value; draw(); }});
  place.append(element("div", {class: "split"}, element("h2", {}, "Accuracy over cycles"), element("div", {class: "tools"}, element("label", {}, "Accuracy is ", measure), element("label", {}, "held against ", reference), element("label", {}, "on ", sample))), body, seriesForm(reference, sample));
  let number = 0, known = "", answered = null;
  const show = () => attempt(async () => {
    const mine = ++number;
    if (!reference.value) { body.replaceChildren(element("p", {class: "empty"}, "The project has no float network to compare with.")); return; }
    if (!body.childElementCount) body.replaceChildren(element("p", {class: "soft"}, "Running every program…"));
    const answer = await ask("frontier", {reference: reference.value, sample: sample.value});
    if (mine !== number || !body.isConnected) return;
    answered = answer;
    const names = measuresOf(answer.points);
    measure.replaceChildren(...names.map(name => element("option", {value: name}, name)));
    measure.value = names.includes(state.measure) ? state.measure : names[0];
    draw();
  });
  const draw = () => {
    const answer = answered, by = measureOf(measure.value);
    body.replaceChildren(frontierPlot(answer.points, by), pointTable(answer.points, by), ...(answer.left_out.length ? [element("p", {class: "soft"}, "Not compared: " + answer.left_out.map(one => one.file + " (" + one.why + ")").join("; "))] : []));
  };
  place.refreshed = () => { const programs = state.project.files.filter(file => file.kind === "program").map(file => file.name + file.modified).join(" "); if (programs !== known) { known = programs; show(); } };
  known = state.project.files.filter(file => file.kind === "program").map(file => file.name + file.modified).join(" ");
  await show();
}
const openPoint = point => change({a: point.file, tab: "time"});
// What accuracy is: a metric of labelled samples, as npuc eval has it, or the decibels of the worst output.
const DECIBELS = "SQNR of the worst output";
const measureOf = name => {
  if (name === DECIBELS) return {name, better: () => 1, value: point => Math.min(120, worst(point.sqnr)), words: point => decibel(point.sqnr) + " dB", mark: at => +at.toFixed(2) + " dB"};
  const figure = point => (point.figures || []).find(one => one.name === name), scaled = (value, unit) => worst(value) * (unit === "%" ? 100 : 1), words = (value, unit) => unit === "%" ? scaled(value, unit).toFixed(2) + " %" : +worst(value).toPrecision(5) + (unit ? " " + unit : "");
  return {
    name, better: point => figure(point).lower_is_better ? -1 : 1, value: point => figure(point) && scaled(figure(point).value, figure(point).unit), mark: at => String(+at.toFixed(3)),
    words: point => { const one = figure(point); return one ? words(one.value, one.unit) + (one.interval ? " (" + one.interval.map(end => words(end, one.unit)).join(" to ") + ")" : "") : ""; },
    float: point => figure(point) ? words(figure(point).float, figure(point).unit) : "",
  };
};
const measuresOf = points => [...new Set(points.flatMap(point => (point.figures || []).map(one => one.name))), DECIBELS];
function best(points, by) {
  const good = point => by.better(point) * by.value(point), known = points.filter(point => by.value(point) !== undefined);
  return known.filter(point => !known.some(other => other !== point && other.cycles <= point.cycles && good(other) >= good(point) && (other.cycles < point.cycles || good(other) > good(point))));
}
function frontierPlot(all, by) {
  if (!all.length) return element("p", {class: "empty"}, "No compiled program of this network yet: compile some below.");
  const points = all.filter(point => by.value(point) !== undefined), height = 300;
  const canvas = element("canvas", {class: "plot", role: "img", "aria-label": by.name + " over cycles of " + points.length + " programs; the table below has the same"}), frame = element("div", {class: "card flush spaced"}, canvas, element("p", {class: "soft caption"}, "each point is a program; the line joins those that no other beats in both. A click opens one."));
  const undominated = best(points, by).sort((a, b) => a.cycles - b.cycles);
  const cycles = points.map(point => point.cycles), figures = points.map(by.value);
  const span = (values, least) => { const low = Math.min(...values), high = Math.max(...values), pad = Math.max((high - low) * 0.12, least); return [Math.max(0, low - pad), high + pad]; };
  const [left, right] = span(cycles, Math.max(...cycles) * 0.02), [bottom, top] = span(figures, by.name === DECIBELS ? 2 : Math.max(1e-3, Math.max(...figures.map(Math.abs)) * 0.005));
  const x = (value, width) => 56 + (value - left) / (right - left) * (width - 76), y = value => 12 + (1 - (value - bottom) / (top - bottom)) * (height - 52);
  const ticks = (low, high) => { const raw = (high - low) / 5, power = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].find(one => one * power >= raw) * power, list = []; for (let at = Math.ceil(low / step) * step; at <= high; at += step) list.push(at); return list; };
  const draw = () => {
    const width = frame.clientWidth || 900, pen = crisp(canvas, width, height);
    pen.font = "11px system-ui, sans-serif";
    for (const mark of ticks(bottom, top)) { pen.fillStyle = style("grid"); pen.fillRect(52, y(mark), width, 1); pen.fillStyle = style("soft"); pen.fillText(by.mark(mark), 4, y(mark) + 4); }
    for (const mark of ticks(left, right)) { pen.fillStyle = style("grid"); pen.fillRect(x(mark, width), 8, 1, height - 44); pen.fillStyle = style("soft"); const words = count(mark); pen.fillText(words, x(mark, width) - pen.measureText(words).width / 2, height - 22); }
    pen.fillText("cycles", width - 48, height - 6);
    pen.strokeStyle = style("accent"); pen.lineWidth = 1.6;
    pen.beginPath();
    undominated.forEach((point, i) => pen[i ? "lineTo" : "moveTo"](x(point.cycles, width), y(by.value(point))));
    pen.stroke();
    // A name is left out where it would lie over a point or over another name; the table has all of them.
    const taken = points.map(point => ({point, left: x(point.cycles, width) - 7, right: x(point.cycles, width) + 7, top: y(by.value(point)) - 7, bottom: y(by.value(point)) + 7}));
    for (const point of points) {
      const on = undominated.includes(point), px = x(point.cycles, width), py = y(by.value(point));
      pen.fillStyle = style(on ? "accent" : "waiting");
      pen.beginPath(); pen.arc(px, py, point.file === state.a ? 7 : 5, 0, 7); pen.fill();
      const words = cut(point.file.replace(/\.npu$/, ""), 28), wide = pen.measureText(words).width, at = px + 9 + wide > width ? px - 9 - wide : px + 9;
      const box = {left: at, right: at + wide, top: py - 8, bottom: py + 6};
      if (!taken.some(other => other.point !== point && other.left < box.right && other.right > box.left && other.top < box.bottom && other.bottom > box.top)) { taken.push(box); pen.fillStyle = style("ink"); pen.fillText(words, at, py + 4); }
    }
  };
  const at = event => points.map(point => [Math.hypot(x(point.cycles, frame.clientWidth) - event.offsetX, y(by.value(point)) - event.offsetY), point]).sort((a, b) => a[0] - b[0])[0];
  canvas.onclick = event => { const [far, point] = at(event); if (far < 14) openPoint(point); };
  canvas.onpointermove = event => { const [far, point] = at(event); canvas.style.cursor = far < 14 ? "pointer" : "default"; tip(event, far < 14 ? [point.file, count(point.cycles) + " cycles", by.words(point), decibel(point.sqnr) + " dB at " + point.worst] : null); };
  canvas.onpointerleave = event => tip(event, null);
  new ResizeObserver(draw).observe(frame);
  return frame;
}
function pointTable(points, by) {
  const undominated = new Set(best(points, by)), metrics = measuresOf(points).filter(name => name !== DECIBELS).map(measureOf);
  const columns = [
    ["program", point => cut(point.file, 50), point => point.file, "text name"], ["cycles", point => count(point.cycles), point => point.cycles],
    ...metrics.map(metric => [metric.name, metric.words, point => metric.value(point) ?? -1e9]),
    ["worst output dB", point => decibel(point.sqnr), point => worst(point.sqnr)], ["output", point => cut(point.worst, 30), point => point.worst, "text"], ["target", point => point.target, point => point.target, "text"],
    ["configuration", point => point.configuration || "", point => point.configuration || "", "text"], ["best", point => undominated.has(point) ? "yes" : "", point => undominated.has(point) ? 0 : 1, "text"],
  ];
  const of = points.find(point => (point.figures || []).length), told = of ? "On " + count(of.figures[0].samples) + " labelled samples, with 95 % intervals; the float network has " + metrics.map(metric => metric.name + " " + metric.float(of)).join(", ") + ". Decibels are of " + of.samples + " samples." : points.length ? "The samples have no labels: decibels of " + points[0].samples + (points[0].samples === 1 ? " sample." : " samples.") : "";
  return element("div", {}, element("p", {class: "soft", id: "frontier-told"}, told), element("div", {class: "card flush scroll spaced"}, sortedTable([...points].sort((a, b) => a.cycles - b.cycles), columns, openPoint, "Programs").table));
}

// A series: the layers that lose most by themselves get 16 bits, one after the other, and each is compiled.
function seriesForm(reference, sample) {
  if (embedded) return "";
  const target = element("select", {id: "series-target"}), name = element("input", {id: "series-name", class: "short", value: "series", "aria-label": "Name of the series"});
  attempt(async () => { const {targets} = await ask("targets"); target.append(...targets.map(word => element("option", {value: word}, word))); target.value = state.target || "edge-4t"; });
  const start = () => attempt(async () => {
    const integers = state.project.files.filter(file => file.kind === "network").map(file => file.name);
    if (!integers.length) throw new Refusal({error: "The order of layers comes from an integer network", fix: "Quantize the network once under ‘Layers’"});
    const other = integers.includes(state.a) ? state.a : integers[0];
    say("Measuring which layers lose most…");
    const {layers} = await ask("compare", {reference: reference.value, other, sample: sample.value});
    const order = layers.filter(row => row.isolated !== undefined && row.isolated !== "inf").sort((a, b) => worst(a.isolated) - worst(b.isolated)).map(row => row.layer || row.name);
    const distinct = [...new Set(order)], counts = [...new Set([0, 1, 2, 4, 8, distinct.length].filter(number => number <= distinct.length))];
    for (const number of counts) {
      const stem = name.value + "-" + number, request = {action: "compile", model: reference.value, output: stem + ".npu", target: target.value, data: sample.value, random: !sample.value, wait: true};
      if (number) { const text = "# Written by npuc studio: the " + number + " layers that lose most have 16 bits.\nlayers:\n" + distinct.slice(0, number).map(layer => "  " + yamlText(layer) + ": int16\n").join(""), file = stem + ".yaml"; const known = state.project.files.some(one => one.name === file) ? await ask("text", {file}) : {digest: ""}; await ask("text", {}, {file, text, digest: known.digest}, "PUT"); request.config = file; }
      await ask("jobs", {}, request);
    }
    say(counts.length + " programs are compiled, with " + counts.join(", ") + " layers in 16 bits.");
    await refresh();
  });
  return element("div", {class: "card form"}, element("span", {class: "soft"}, "Compile a series: 16 bits for the layers that lose most by themselves, for more and more of them."), element("label", {}, "Target ", target), element("label", {}, "Name ", name), element("button", {type: "button", id: "series-start", onclick: start}, "Compile the series"));
}
