// Groups and tiles of a program, changed and compiled again: what is saved fixes what was changed, and leaves the rest to the search.
const planned = {file: "", groups: null, limits: {}};
const scheduleOf = program => program.replace(/\.npu$/, "") + ".schedule.yaml";

async function scheduleView(place) {
  const programs = state.project.files.filter(file => file.kind === "program" && state.project.files.some(other => other.name === scheduleOf(file.name)));
  if (!programs.length) { place.append(element("p", {class: "empty"}, embedded ? "This page was exported without a schedule (NAME.schedule.yaml beside NAME.npu)." : "No program of this project has its schedule beside it. Compile one under ‘Layers’: that writes NAME.npu and NAME.schedule.yaml.")); return; }
  const shown = programs.some(file => file.name === state.a) ? state.a : programs.at(-1).name;
  const choice = element("select", {id: "schedule-program", onchange: () => change({a: choice.value, tab: "act"})}, ...programs.map(file => element("option", {value: file.name}, file.name)));
  choice.value = shown;
  const answer = await ask("schedule", {file: scheduleOf(shown)}), data = await ask("time", {file: shown});
  if (!place.isConnected) return;
  if (planned.file !== shown) Object.assign(planned, {file: shown, limits: {...answer.limits}, groups: answer.subgraphs.flatMap(part => part.groups.map(group => ({part: part.name, fields: group, changed: false})))});
  const body = element("div", {class: "card flush scroll spaced"}), note = element("span", {class: "soft", id: "schedule-changes"});
  place.append(element("div", {class: "split"}, element("h2", {}, "Groups and tiles"), element("div", {class: "tools"}, element("label", {}, "Program ", choice))), body, scheduleForm(answer, note, shown));
  const draw = () => {
    const number = planned.groups.filter(group => group.changed).length;
    note.textContent = number ? number + (number === 1 ? " group is fixed" : " groups are fixed") + ", the rest is searched for" : "Change tiles, split or join groups.";
    body.replaceChildren(groupTable(data, draw));
  };
  draw();
}

function groupTable(data, draw) {
  const figures = new Map(data.groups.map(group => [group.layers.join("\n"), group]));
  const titles = [["#", ""], ["layers", "text"], ["rows", ""], ["columns", ""], ["channels", ""], ["constants once", "text"], ["results kept", "text"], ["cycles", ""], ["limited by", "text"], ["", "text"]];
  const body = element("tbody");
  planned.groups.forEach((group, i) => {
    const {fields} = group, known = figures.get(fields.layers.join("\n")), next = planned.groups[i + 1];
    const set = (key, value) => { fields[key] = value; group.changed = true; draw(); };
    const count_ = (key, words) => element("input", {type: "number", class: "tiny", min: 1, max: 4096, value: fields[key], "aria-label": "Tiles of " + words + " of group " + i, onchange: event => set(key, Math.max(1, Math.round(Number(event.target.value) || 1)))});
    const kept = element("select", {"aria-label": "Results of group " + i, onchange: event => set("resident_results", {yes: true, no: false, searched: null}[event.target.value])}, ...["yes", "no", "searched"].map(word => element("option", {value: word}, word)));
    kept.value = fields.resident_results === null ? "searched" : fields.resident_results ? "yes" : "no";
    const once = element("input", {type: "checkbox", "aria-label": "Constants of group " + i + " are loaded once", onchange: event => set("resident_weights", event.target.checked)});
    once.checked = fields.resident_weights;
    const actions = element("div", {class: "tools"});
    if (fields.layers.length > 1) {
      const where = element("select", {"aria-label": "Split group " + i, onchange: () => { if (where.value) { splitGroup(i, Number(where.value)); draw(); } }}, element("option", {value: ""}, "split after…"), ...fields.layers.slice(0, -1).map((layer, at) => element("option", {value: at + 1}, cut(layer, 30))));
      actions.append(where);
    }
    if (next && next.part === group.part) actions.append(element("button", {type: "button", "aria-label": "join next: group " + i, onclick: () => { joinGroups(i); draw(); }}, "join next"));
    body.append(element("tr", {class: group.changed ? "chosen" : undefined}, element("td", {}, i), element("td", {class: "text", title: fields.layers.join(", ")}, fields.layers.length > 2 ? cut(fields.layers[0], 24) + " … " + cut(fields.layers.at(-1), 24) + " (" + fields.layers.length + ")" : cut(fields.layers.join(", "), 56)),
      element("td", {}, count_("tiles", "rows")), element("td", {}, count_("column_tiles", "columns")), element("td", {}, count_("channel_tiles", "channels")), element("td", {class: "text"}, once), element("td", {class: "text"}, kept),
      element("td", {}, known && !group.changed ? count(known.cycles) : ""), element("td", {class: "text"}, known && !group.changed ? known.limited_by : group.changed ? "changed" : ""), element("td", {class: "text"}, actions)));
  });
  return element("table", {"aria-label": "Groups of layers"}, element("thead", {}, element("tr", {}, ...titles.map(([word, kind]) => element("th", {scope: "col", class: kind || undefined}, word)))), body);
}
const fresh = (group, layers) => ({part: group.part, changed: true, fields: {...group.fields, layers, resident_results: null, column_tiles: 1, channel_tiles: 1, by_inputs: false, by_channels: false, alone: false, moved: false}});
function splitGroup(i, at) {
  const group = planned.groups[i], {layers} = group.fields;
  planned.groups.splice(i, 1, fresh(group, layers.slice(0, at)), fresh(group, layers.slice(at)));
}
function joinGroups(i) {
  const [group, next] = planned.groups.slice(i, i + 2);
  planned.groups.splice(i, 2, fresh(group, [...group.fields.layers, ...next.fields.layers]));
  planned.groups[i].fields.tiles = Math.max(group.fields.tiles, next.fields.tiles);
}

function scheduleForm(answer, note, program) {
  const networks = state.project.files.filter(file => file.kind === "network" || file.kind === "model");
  const source = element("select", {id: "schedule-source"}, ...networks.map(file => element("option", {value: file.name}, file.name)));
  const stem = program.replace(/\.npu$/, ""), guess = networks.find(file => file.name === stem + ".mlir") || networks.find(file => file.kind === "network");
  if (guess) source.value = guess.name;
  const name = element("input", {id: "schedule-name", value: stem.replace(/.*\//, "") + "-tiled", "aria-label": "Name of the result"});
  const limit = (id, words, key, hint) => { const input = element("input", {id, class: "short", inputmode: "decimal", placeholder: hint, value: planned.limits[key] ?? "", onchange: () => { if (input.value.trim()) planned.limits[key] = Number(input.value); else delete planned.limits[key]; }}); return element("label", {}, words + " ", input); };
  const save = async () => {
    const subgraphs = [...new Set(planned.groups.map(group => group.part))].map(part => ({name: part, groups: planned.groups.filter(group => group.part === part && group.changed).map(group => group.fields)}));
    const file = name.value + ".tiles.yaml", saved = await ask("schedule", {}, {file, schedule: {target: answer.target, limits: planned.limits, subgraphs}, digest: state.savedSchedule && state.savedSchedule.file === file ? state.savedSchedule.digest : ""}, "PUT");
    state.savedSchedule = {file, digest: saved.digest};
    await refresh();
    return file;
  };
  const compile = () => attempt(async () => {
    const schedule = await save();
    await ask("jobs", {}, {action: "compile", model: source.value, output: name.value + ".npu", target: answer.target, schedule, random: state.project.files.some(file => file.name === source.value && file.kind === "model")});
    say("");
    await refresh();
  });
  return element("div", {class: "card form"}, note, limit("schedule-cores", "Cores", "cores", "all"), limit("schedule-memory", "Local memory, bytes", "local_memory", "all of it"), limit("schedule-halo", "Work done twice, at most", "max_halo", "any"),
    element("label", {}, "From ", source), element("label", {}, "Result ", name), ...(embedded ? [] : [element("button", {type: "button", id: "schedule-save", onclick: () => attempt(async () => say("Saved as " + await save()))}, "Save as schedule"), element("button", {type: "button", id: "schedule-compile", onclick: compile}, "Compile with it")]));
}
