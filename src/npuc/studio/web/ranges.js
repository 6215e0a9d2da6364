// Ranges of tensors on the histograms of their values: moved there, and saved as the calibration table that the command line takes.
const ranged = {table: "", edits: new Map(), figures: new Map(), tensor: ""};
const statisticsOf = table => table.replace(/\.cali$/, "") + ".stats.npz";
const calibrations = () => state.project.files.filter(file => file.kind === "table" && state.project.files.some(other => other.name === statisticsOf(file.name)));

async function rangesView(place) {
  const tables = calibrations(), rows = element("div", {class: "ranges"});
  if (!tables.some(file => file.name === ranged.table)) { ranged.table = tables.length ? tables[0].name : ""; ranged.edits.clear(); }
  const choice = element("select", {id: "range-table", onchange: () => { ranged.table = choice.value; ranged.edits.clear(); render(); }}, ...tables.map(file => element("option", {value: file.name}, file.name)));
  choice.value = ranged.table;
  place.append(element("div", {class: "split"}, element("h2", {}, "Calibration ranges"), tables.length ? element("div", {class: "tools"}, element("label", {}, "Table ", choice)) : ""), embedded ? "" : calibrateForm(), rows);
  place.refreshed = () => { if (calibrations().length !== tables.length) render(); };
  if (!ranged.table) { rows.append(element("p", {class: "empty"}, embedded ? "This page was exported without a calibration table (.cali) and its statistics (.stats.npz)." : "Ranges come from data: calibrate a network above, and its tensors appear here with the values that they had.")); return; }
  const {rows: tensors} = await ask("ranges", {table: ranged.table, stats: statisticsOf(ranged.table)});
  if (rows.isConnected) showRanges(rows, tensors);
}

function calibrateForm() {
  const networks = state.project.files.filter(file => file.kind === "model" || file.kind === "network");
  const model = element("select", {id: "range-model"}, ...networks.map(file => element("option", {value: file.name}, file.name)));
  const wanted = [state.b, state.a].find(name => networks.some(file => file.name === name));
  if (wanted) model.value = wanted;
  const data = element("select", {id: "range-data"}, ...state.project.files.filter(file => file.kind === "tensors" || file.kind === "image").map(file => element("option", {value: file.name}, file.name)));
  if ([...data.options].some(option => option.value === state.sample)) data.value = state.sample;
  const method = element("select", {id: "range-method"}, ...["mse", "max", "percentile", "kl", "aciq"].map(word => element("option", {value: word}, word)));
  const start = () => attempt(async () => {
    const output = model.value.replace(/.*\//, "").replace(/\.[^.]*$/, "") + ".cali";
    await ask("jobs", {}, {action: "calibrate", model: model.value, data: data.value, method: method.value, output});
    say("Calibrating; ‘Change’ shows how far it is.");
    await refresh();
  });
  return element("details", {class: "card", open: !calibrations().length}, element("summary", {}, "Calibrate a network"),
    element("div", {class: "form"}, element("label", {}, "Network ", model), element("label", {}, "Data ", data), element("label", {}, "Method ", method), element("button", {type: "button", id: "range-calibrate", onclick: start}, "Calibrate")));
}

function showRanges(place, tensors) {
  const now = row => ranged.edits.get(row.name) || [row.min, row.max];
  const columns = [
    ["tensor", row => cut(row.name, 46), row => row.name, "text name"], ["smallest", row => short(row.low), row => row.low], ["largest", row => short(row.high), row => row.high],
    ["range from", row => short(now(row)[0]), row => now(row)[0]], ["to", row => short(now(row)[1]), row => now(row)[1]], ["clipped", row => percents(row.clipped), row => row.clipped],
    ["dB at 8 bits", row => row.sqnr === null ? "" : row.sqnr.toFixed(1), row => row.sqnr === null ? 1e9 : row.sqnr], ["method", row => ranged.edits.has(row.name) ? "edited" : row.method, row => row.method, "text"],
  ];
  const editor = element("div", {class: "card", id: "range-editor"}), name = element("input", {id: "range-name", value: (ranged.table.replace(/\.cali$/, "") + "-edited").replace(/.*\//, ""), "aria-label": "Name of the table"});
  const edits = element("span", {class: "soft", id: "range-edits"});
  const {table, lines} = sortedTable(tensors, columns, row => open(row), "Ranges of tensors");
  const tell = () => {
    edits.textContent = ranged.edits.size ? ranged.edits.size + (ranged.edits.size === 1 ? " range changed" : " ranges changed") : "Move the ends of a range on its histogram.";
    tensors.forEach((row, i) => { const cells = lines[i].children, [low, high] = now(row); cells[3].textContent = short(low); cells[4].textContent = short(high); cells[7].textContent = columns[7][1](row);
      const figures = ranged.edits.has(row.name) && ranged.figures.get(row.name);
      cells[5].textContent = percents(figures ? figures.clipped : row.clipped); cells[6].textContent = figures ? figures.decibels.toFixed(1) : columns[6][1](row); });
  };
  const open = row => attempt(async () => {
    ranged.tensor = row.name;
    tensors.forEach((other, i) => lines[i].classList.toggle("chosen", other === row));
    const details = await ask("range", {stats: statisticsOf(ranged.table), name: row.name});
    if (editor.isConnected && ranged.tensor === row.name) rangeEditor(editor, details, now(row), [row.min, row.max], (pair, figures) => { if (pair) { ranged.edits.set(row.name, pair); ranged.figures.set(row.name, figures); } else ranged.edits.delete(row.name); tell(); });
  });
  const save = async () => {
    const file = name.value + ".cali", answer = await ask("ranges", {}, {file, table: ranged.table, changes: Object.fromEntries(ranged.edits), digest: state.savedTable && state.savedTable.file === file ? state.savedTable.digest : ""}, "PUT");
    state.savedTable = {file, digest: answer.digest};
    await refresh();
    return file;
  };
  const quantize = () => attempt(async () => {
    const file = await save();
    await ask("jobs", {}, {action: "quantize", model: byId("range-model").value, output: name.value + ".mlir", table: file, target: state.target || ""});
    change({tab: "act"});
  });
  place.replaceChildren(editor, element("div", {class: "card form"}, edits, element("label", {}, "Table ", name), ...(embedded ? [] : [
    element("button", {type: "button", id: "range-save", onclick: () => attempt(async () => say("Saved as " + await save()))}, "Save as table"), element("button", {type: "button", id: "range-quantize", onclick: quantize}, "Quantize with it")])),
    element("div", {class: "card flush scroll"}, table));
  tell();
  const first = tensors.find(row => row.name === ranged.tensor) || tensors.find(row => row.name === state.layer) || [...tensors].sort((a, b) => (a.sqnr ?? 1e9) - (b.sqnr ?? 1e9))[0];
  if (first) open(first);
}
const short = value => Math.abs(value) >= 1e5 || (value && Math.abs(value) < 1e-3) ? value.toExponential(2) : String(+value.toPrecision(4));
const percents = value => value ? (100 * value).toFixed(value < 0.0005 ? 3 : 2) + "%" : "0%";

// What a range does to the values of a histogram: rounding inside of it, clipping outside. Zeros are exact in any range.
function rangeError(details, [low, high], levels = 255) {
  const {counts, low: begin, high: end} = details, width = (end - begin) / counts.length, step = (high - low) / levels;
  let noise = -details.zeros * step * step / 12, out = 0, total = 0;
  counts.forEach((number, i) => {
    const left = begin + i * width, right = left + width, middle = (left + right) / 2, outside = right < low || left > high, beyond = outside ? (right < low ? low - middle : middle - high) : 0;
    noise += number * (outside ? beyond * beyond : step * step / 12);
    out += outside ? number : 0;
    total += number;
  });
  return {clipped: out / Math.max(1, total), step, decibels: noise > 0 ? 10 * Math.log10(details.square * total / noise) : Infinity};
}

function rangeEditor(place, details, start, saved, changed) {
  let pair = [...start];
  const height = 190, canvas = element("canvas", {class: "plot range-plot", role: "img", "aria-label": "Histogram of " + details.name + " with its range"});
  const verdict = element("p", {id: "range-verdict", role: "status"});
  const span = details.high - details.low || 1, left = Math.min(details.low, saved[0], 0) - 0.05 * span, right = Math.max(details.high, saved[1], 0) + 0.05 * span;
  const number = (id, words, at) => { const input = element("input", {id, class: "short", inputmode: "decimal", onchange: () => { const value = Number(input.value); if (Number.isFinite(value)) set(at, value); }}); return [input, element("label", {}, words + " ", input)]; };
  const slider = (words, at) => element("input", {type: "range", class: "range-slider", "aria-label": words + " of the range", min: left, max: right, step: (right - left) / 1000, oninput: event => set(at, Number(event.target.value))});
  const [lowInput, lowLabel] = number("range-low", "From", 0), [highInput, highLabel] = number("range-high", "to", 1), sliders = [slider("Lower end", 0), slider("Upper end", 1)];
  const set = (at, value) => {
    pair[at] = at ? Math.max(0, value) : Math.min(0, value);
    show();
    changed(pair[0] === saved[0] && pair[1] === saved[1] ? null : [...pair], rangeError(details, pair));
  };
  const x = (value, width) => (value - left) / (right - left) * width;
  const show = () => {
    lowInput.value = +pair[0].toPrecision(6); highInput.value = +pair[1].toPrecision(6);
    sliders.forEach((one, at) => { one.value = pair[at]; });
    const now = rangeError(details, pair), before = rangeError(details, saved);
    verdict.textContent = percents(now.clipped) + " of the values are clipped, a step of 8 bits is " + short(now.step) + ", about " + now.decibels.toFixed(1) + " dB" + (Math.abs(now.decibels - before.decibels) > 0.05 ? " (" + (now.decibels > before.decibels ? "+" : "−") + Math.abs(now.decibels - before.decibels).toFixed(1) + ")" : "");
    draw();
  };
  const draw = () => {
    const width = canvas.clientWidth || 900, pen = crisp(canvas, width, height), base = height - 18, top = Math.log1p(Math.max(1, ...details.counts)), wide = (details.high - details.low) / details.counts.length;
    details.counts.forEach((value, i) => {
      const at = details.low + i * wide, inside = at + wide / 2 >= pair[0] && at + wide / 2 <= pair[1], tall = Math.log1p(value) / top * (base - 14);
      pen.fillStyle = style(inside ? "matrix" : "DMA");
      pen.fillRect(x(at, width), base - tall, Math.max(1, x(at + wide, width) - x(at, width) - 0.5), tall);
    });
    pen.globalAlpha = 0.12; pen.fillStyle = style("matrix"); pen.fillRect(x(pair[0], width), 4, x(pair[1], width) - x(pair[0], width), base - 4); pen.globalAlpha = 1;
    pen.font = "11px system-ui, sans-serif";
    for (const value of pair) {
      const at = x(value, width);
      pen.fillStyle = style("ink"); pen.fillRect(at - 1, 4, 2, base - 4);
      pen.beginPath(); pen.arc(at, 10, 6, 0, 7); pen.fill();
    }
    pen.fillStyle = style("soft");
    for (const value of new Set([details.observed[0], 0, details.observed[1]])) { const words = short(value), wideText = pen.measureText(words).width; pen.fillText(words, Math.max(0, Math.min(width - wideText, x(value, width) - wideText / 2)), height - 4); }
  };
  let held = -1;
  const valueAt = event => left + event.offsetX / canvas.clientWidth * (right - left);
  canvas.onpointerdown = event => { const value = valueAt(event); held = Math.abs(value - pair[0]) < Math.abs(value - pair[1]) ? 0 : 1; canvas.setPointerCapture(event.pointerId); set(held, value); };
  canvas.onpointermove = event => { canvas.style.cursor = "ew-resize"; if (held >= 0) set(held, valueAt(event)); };
  canvas.onpointerup = canvas.onpointercancel = () => { held = -1; };
  const methods = Object.entries(details.methods).map(([method, range]) => element("button", {type: "button", title: short(range[0]) + " to " + short(range[1]), onclick: () => { pair = [...range]; set(1, range[1]); }}, method));
  place.replaceChildren(element("div", {class: "split"}, element("h3", {}, details.name, element("span", {class: "soft"}, count(details.count) + " values, heights logarithmic")), element("div", {class: "tools"}, "as ", ...methods, element("button", {type: "button", onclick: () => { pair = [...saved]; set(1, saved[1]); }}, "in the table"))),
    canvas, element("div", {class: "range-sliders"}, ...sliders), element("div", {class: "form"}, lowLabel, highLabel, verdict));
  new ResizeObserver(draw).observe(canvas);
  show();
}
