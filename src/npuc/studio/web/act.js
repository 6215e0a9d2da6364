// Change a layer's bits or device, quantize and compile again, and see accuracy and cycles move. What is saved are the files that the
// command line takes.
const changes = new Map();
// A text of JSON is one of YAML too, but for characters that YAML takes as line ends or does not allow.
const yamlText = text => JSON.stringify(text).replace(/[\u007f-\u009f\u2028\u2029\ufeff\ufffe\uffff]/g, mark => "\\u" + mark.charCodeAt(0).toString(16).padStart(4, "0"));
function configurationText() {
  const lines = ["# Written by npuc studio; npuc quantize --config and npuc compile --config take it.", "layers:"];
  for (const [layer, {scheme}] of [...changes].sort()) if (scheme) lines.push("  " + yamlText(layer) + ": " + scheme);
  return lines.length > 2 ? lines.join("\n") + "\n" : "";
}
async function actView(place) {
  if (embedded) { place.append(element("p", {class: "empty"}, "This is an exported page. npuc studio changes and recomputes.")); return; }
  const networks = state.project.files.filter(file => file.kind === "model" || file.kind === "network");
  const source = element("select", {id: "act-model"}, ...networks.map(file => element("option", {value: file.name}, file.name)));
  if (networks.some(file => file.name === state.a)) source.value = state.a;
  const {targets} = await ask("targets");
  const target = element("select", {id: "act-target"}, ...targets.map(name => element("option", {value: name}, name)));
  target.value = state.target || "edge-4t";
  const data = element("select", {id: "act-data"}, element("option", {value: ""}, "random numbers (accuracy means nothing)"));
  for (const file of state.project.files) if (file.kind === "tensors" || file.kind === "image") data.append(element("option", {value: file.name}, file.name));
  const layer = element("input", {id: "act-layer", value: state.layer, placeholder: "a layer, or a pattern such as head.*", "aria-label": "Layer"});
  const scheme = element("select", {id: "act-scheme", "aria-label": "Scheme"}, ...["", "int8", "int16", "float"].map(word => element("option", {value: word}, word || "as it is")));
  const device = element("select", {id: "act-device", "aria-label": "Device"}, ...["", "npu", "cpu"].map(word => element("option", {value: word}, word || "as it is")));
  const listed = element("ul", {id: "act-changes"});
  const level = element("select", {id: "act-level"}, ...["0", "1", "2", "3"].map(word => element("option", {value: word}, "-O" + word)));
  level.value = "2";
  const name = element("input", {id: "act-name", value: "studio", "aria-label": "Name of the result"});
  const jobs = element("div", {id: "jobs"});
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
    const request = {action, model: source.value, output, target: target.value, data: data.value, random: !data.value, config};
    if (action === "compile") Object.assign(request, {level: level.value, devices});
    await ask("jobs", {}, request);
    say("");
    await refresh();
  });
  place.append(
    element("h2", {}, "Change a layer"),
    element("div", {class: "card form"}, element("label", {}, "Layer ", layer), element("label", {}, "Scheme ", scheme), element("label", {}, "Device ", device), element("button", {type: "button", id: "act-add", onclick: add}, "Add"), listed),
    element("h2", {}, "Compute again"),
    element("div", {class: "card form"}, element("label", {}, "From ", source), element("label", {}, "Target ", target), element("label", {}, "Calibration ", data), element("label", {}, "Search ", level), element("label", {}, "Result ", name),
      element("button", {type: "button", id: "act-quantize", onclick: () => start("quantize")}, "Quantize"), element("button", {type: "button", id: "act-compile", onclick: () => start("compile")}, "Compile"),
      element("button", {type: "button", id: "act-save", onclick: () => attempt(async () => { const file = await save(); say(file ? "Saved as " + file : "There is no change to save.", !file); })}, "Save as configuration")),
    element("h2", {}, "Jobs"), jobs);
  list();
  const none = element("p", {class: "soft"}, "None yet.");
  const show = () => jobs.replaceChildren(...(state.project.jobs.length ? [] : [none]), ...state.project.jobs.map(job => element("div", {class: "card job " + job.state},
    element("div", {class: "split"}, element("strong", {}, job.title), element("span", {}, job.state + ", " + job.seconds + " s"),
      job.state === "running" ? element("button", {type: "button", onclick: () => attempt(async () => { await ask("jobs/" + job.number, {}, undefined, "DELETE"); await refresh(); })}, "Cancel")
        : job.state === "done" ? element("button", {type: "button", onclick: () => change({a: job.writes[0].replace(/^\.\//, ""), tab: "graph"})}, "Open") : ""),
    element("code", {}, job.command), ...(job.lines.length ? [element("pre", {}, job.lines.slice(-6).join("\n"))] : []))));
  show();
  place.refreshed = show;
}
