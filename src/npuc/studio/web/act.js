// Change something, compute again, and see accuracy and cycles move: bits and devices of layers, ranges, the schedule, and the programs
// that came of it. What is saved are the files that the command line takes.
const changes = new Map();
const PARTS = {layers: ["Layers", layersPart], ranges: ["Ranges", place => rangesView(place)], schedule: ["Schedule", place => scheduleView(place)], frontier: ["Frontier", place => frontierView(place)]};
// A text of JSON is one of YAML too, but for characters that YAML takes as line ends or does not allow.
const yamlText = text => JSON.stringify(text).replace(/[\u007f-\u009f\u2028\u2029\ufeff\ufffe\uffff]/g, mark => "\\u" + mark.charCodeAt(0).toString(16).padStart(4, "0"));
function configurationText() {
  const lines = ["# Written by npuc studio; npuc quantize --config and npuc compile --config take it.", "layers:"];
  for (const [layer, {scheme}] of [...changes].sort()) if (scheme) lines.push("  " + yamlText(layer) + ": " + scheme);
  return lines.length > 2 ? lines.join("\n") + "\n" : "";
}
async function actView(place) {
  const parts = Object.fromEntries(Object.entries(PARTS).filter(([key]) => !embedded || key !== "layers"));
  if (!(state.part in parts)) state.part = Object.keys(parts)[0];
  const nav = element("div", {class: "parts", role: "group", "aria-label": "What to change"}, ...Object.entries(parts).map(([key, [words]]) => element("button", {type: "button", id: "part-" + key, "aria-pressed": state.part === key ? "true" : "false", onclick: () => change({part: key, tab: "act"})}, words)));
  const inside = element("div"), jobs = element("div", {id: "jobs"});
  place.append(nav, ...(embedded ? [element("p", {class: "soft"}, "An exported page shows what there was; npuc studio changes it and computes again.")] : []), inside, ...(embedded ? [] : [element("h2", {}, "Jobs"), jobs]));
  const show = () => showJobs(jobs);
  place.refreshed = () => { show(); if (inside.refreshed) inside.refreshed(); };
  show();
  await PARTS[state.part][1](inside);
}

async function layersPart(place) {
  const networks = state.project.files.filter(file => file.kind === "model" || file.kind === "network");
  const source = element("select", {id: "act-model"}, ...networks.map(file => element("option", {value: file.name}, file.name)));
  if (networks.some(file => file.name === state.a)) source.value = state.a;
  const {targets} = await ask("targets");
  const target = element("select", {id: "act-target", onchange: () => { state.target = target.value; }}, ...targets.map(name => element("option", {value: name}, name)));
  target.value = state.target || "edge-4t";
  const data = element("select", {id: "act-data"}, element("option", {value: ""}, "random numbers (accuracy means nothing)"));
  for (const file of state.project.files) if (["tensors", "image", "table"].includes(file.kind)) data.append(element("option", {value: file.name}, file.name));
  if ([...data.options].some(option => option.value === state.sample)) data.value = state.sample;
  const layer = element("input", {id: "act-layer", value: state.layer, placeholder: "a layer, or a pattern such as head.*", "aria-label": "Layer", list: "act-layers", onfocus: () => { if (listedFor !== source.value) { listedFor = source.value; attempt(fillLayers); } }});
  const layers = element("datalist", {id: "act-layers"});
  let listedFor = "";
  const fillLayers = async () => {
    const {nodes} = await ask("graph", {file: source.value, form: "canonical"});
    layers.replaceChildren(...nodes.filter(node => node.device !== "input" && node.device !== "output").slice(0, 3000).map(node => element("option", {value: node.name})));
  };
  const scheme = element("select", {id: "act-scheme", "aria-label": "Scheme"}, ...["", "int8", "int16", "float"].map(word => element("option", {value: word}, word || "as it is")));
  const device = element("select", {id: "act-device", "aria-label": "Device"}, ...["", "npu", "cpu"].map(word => element("option", {value: word}, word || "as it is")));
  const listed = element("ul", {id: "act-changes"});
  const level = element("select", {id: "act-level"}, ...["0", "1", "2", "3"].map(word => element("option", {value: word}, "-O" + word)));
  level.value = "2";
  const name = element("input", {id: "act-name", value: "studio", "aria-label": "Name of the result"});
  const list = () => listed.replaceChildren(...[...changes].map(([key, value]) => element("li", {}, element("code", {}, key), " ", [value.scheme, value.device && "on the " + value.device.toUpperCase()].filter(word => word).join(", "), " ", element("button", {type: "button", "aria-label": "Take back the change of " + key, onclick: () => { changes.delete(key); list(); }}, "×"))));
  const add = () => {
    const key = layer.value.trim();
    if (!key || (!scheme.value && !device.value)) { say("Name a layer, and a scheme or a device for it.", true); return; }
    changes.set(key, {scheme: scheme.value, device: device.value});
    say("");
    list();
  };
  const save = async () => {
    const text = configurationText(), file = name.value + ".yaml";
    if (!text) return "";
    // Somebody else's file of that name is never replaced: a digest that does not match is refused.
    const known = state.saved && state.saved.file === file ? state.saved.digest : "";
    const answer = await ask("text", {}, {file, text, digest: known}, "PUT");
    state.saved = {file, digest: answer.digest};
    return file;
  };
  const start = action => attempt(async () => {
    const config = await save(), output = name.value + (action === "quantize" ? ".mlir" : ".npu");
    const devices = Object.fromEntries([...changes].filter(([, value]) => value.device).map(([key, value]) => [key, value.device]));
    const kindOf = name => (state.project.files.find(file => file.name === name) || {kind: ""}).kind;
    // A network that is integers already has its ranges: the command refuses others.
    const ranges = kindOf(data.value) === "table" ? {table: data.value} : {data: data.value, random: !data.value && kindOf(source.value) === "model"};
    const request = {action, model: source.value, output, target: target.value, config, ...ranges};
    if (action === "compile") Object.assign(request, {level: level.value, devices});
    await ask("jobs", {}, request);
    say("");
    await refresh();
  });
  place.append(
    element("h2", {}, "Change a layer"),
    element("div", {class: "card form"}, element("label", {}, "Layer ", layer), layers, element("label", {}, "Scheme ", scheme), element("label", {}, "Device ", device), element("button", {type: "button", id: "act-add", onclick: add}, "Add"), listed),
    element("h2", {}, "Compute again"),
    element("div", {class: "card form"}, element("label", {}, "From ", source), element("label", {}, "Target ", target), element("label", {}, "Ranges from ", data), element("label", {}, "Search ", level), element("label", {}, "Result ", name),
      element("button", {type: "button", id: "act-quantize", onclick: () => start("quantize")}, "Quantize"), element("button", {type: "button", id: "act-compile", onclick: () => start("compile")}, "Compile"),
      element("button", {type: "button", id: "act-save", onclick: () => attempt(async () => { const file = await save(); say(file ? "Saved as " + file : "There is no change to save.", !file); })}, "Save as configuration")));
  list();
}

function showJobs(place) {
  const none = element("p", {class: "soft"}, "None yet.");
  const figures = job => Object.entries(job.figures || {}).map(([name, value]) => typeof value === "number" ? (value < 1 ? String(+value.toPrecision(2)) : count(value, value < 100 ? 2 : 0)) + " " + name : name + " " + value).join(", ");
  const open = job => job.writes[0].endsWith(".cali") ? change({part: "ranges", tab: "act"}) : change({a: job.writes[0], tab: job.writes[0].endsWith(".npu") ? "time" : "graph"});
  place.replaceChildren(...(state.project.jobs.length ? [] : [none]), ...state.project.jobs.map(job => element("div", {class: "card job " + job.state},
    element("div", {class: "split"}, element("strong", {}, job.title), element("span", {class: "figures"}, figures(job)), element("span", {class: "soft"}, job.state + (job.state === "waiting" ? "" : ", " + job.seconds + " s")),
      job.state === "running" || job.state === "waiting" ? element("button", {type: "button", "aria-label": "Cancel " + job.title, onclick: () => attempt(async () => { await ask("jobs/" + job.number, {}, undefined, "DELETE"); await refresh(); })}, "Cancel")
        : job.state === "done" ? element("button", {type: "button", "aria-label": "Open what " + job.title + " wrote", onclick: () => open(job)}, "Open") : "",
      job.state === "done" && !job.writes[0].endsWith(".cali") ? element("button", {type: "button", class: "compare", "aria-label": "Compare what " + job.title + " wrote with " + job.model, onclick: () => change({a: job.writes[0], b: job.model, tab: "numbers"})}, "Compare with " + cut(job.model, 24)) : ""),
    element("code", {}, job.command), ...(job.lines.length && job.state !== "done" ? [element("pre", {tabindex: "0"}, job.lines.slice(-6).join("\n"))] : []))));
}
