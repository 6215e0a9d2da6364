// One instruction of a program: its line, when it ran, what it waited for, where its operands lie; its neighbours in the stream.
const CODE_WINDOW = 64;
const hex = value => "0x" + value.toString(16);
const windows = new Map();
async function codeWindow(part, core, first) {
  const file = state.project.files.find(one => one.name === state.a), key = [state.a, file && file.modified, part, core, first].join(" ");
  if (!windows.has(key)) {
    if (windows.size > 40) windows.clear();
    windows.set(key, await ask("instructions", {file: state.a, part, core, first}));
  }
  return windows.get(key);
}
async function instructionRow(part, core, index) {
  const found = await codeWindow(part, core, index - index % CODE_WINDOW);
  return found.rows.find(row => row.index === index);
}

async function showInstruction(place, shown, at) {
  const answer = await codeWindow(at.part, at.core, at.index - at.index % CODE_WINDOW), row = answer.rows.find(one => one.index === at.index);
  if (!place.isConnected || !row) return;
  const go = (index, core = at.core) => attempt(() => showInstruction(place, shown, {part: at.part, core, index}));
  const near = await Promise.all([...new Set([...Object.values(row.waits), ...(row.before >= 0 ? [row.before] : [])])].map(index => instructionRow(at.part, at.core, index)));
  const followers = await Promise.all(row.followers.map(index => instructionRow(at.part, at.core, index)));
  shown.mark([...near.map(one => ({...one, core: at.core, role: "before"})), ...followers.map(one => ({...one, core: at.core, role: "follower"})), {...row, core: at.core, role: "this"}]);
  const long = Math.max(8, row.end - Math.min(row.start, row.issue));
  shown.look(row.start - 2 * long, row.end + 2 * long);
  place.hidden = false;
  const title = element("h2", {tabindex: "-1"}, "Instruction " + count(row.index), element("span", {class: "soft"}, "of " + count(answer.count) + (answer.name ? " in " + answer.name : "") + ", core " + at.core));
  const step = (words, index) => element("button", {type: "button", disabled: index < 0 || index >= answer.count, onclick: () => go(index)}, words);
  const close = element("button", {type: "button", "aria-label": "Close the instructions", onclick: () => { place.hidden = true; shown.mark([]); }}, "×");
  const head = element("div", {class: "split"}, title, element("div", {class: "tools"}, step("Earlier", row.index - 1), step("Later", row.index + 1), close));
  place.replaceChildren(head, element("div", {class: "code-columns"}, codeList(answer, row, go), instructionFacts(row, near, followers, go)));
}

function codeList(answer, chosen, go) {
  const body = element("tbody");
  let there = null;
  for (const row of answer.rows) {
    const line = element("tr", {tabindex: "0", class: row === chosen ? "chosen" : undefined, onclick: () => go(row.index), onkeydown: event => { if (event.key === "Enter") go(row.index); }},
      element("td", {}, row.index), element("td", {class: "text"}, row.queue), element("td", {class: "text"}, cut(row.layer, 22)), element("td", {}, count(row.start)), element("td", {}, count(row.end - row.start)), element("td", {class: "text code", title: row.text}, row.text));
    if (row === chosen) there = line;
    body.append(line);
  }
  const heads = [["#", ""], ["queue", "text"], ["layer", "text"], ["at cycle", ""], ["cycles", ""], ["instruction", "text"]].map(([word, kind]) => element("th", {scope: "col", class: kind || undefined}, word));
  const box = element("div", {class: "card flush scroll code-list", tabindex: "0", role: "region", "aria-label": "Instructions of the stream"}, element("table", {"aria-label": "Instructions"}, element("thead", {}, element("tr", {}, ...heads)), body));
  requestAnimationFrame(() => { if (there) box.scrollTop = there.offsetTop - 120; });
  return box;
}

function instructionFacts(row, near, followers, go) {
  const link = one => element("button", {type: "button", class: "link", onclick: () => go(one.index)}, one.index + " " + one.op + " (" + cut(one.layer, 24) + ")");
  const list = element("dl", {class: "facts"});
  const add = (name, ...value) => list.append(element("dt", {}, name), element("dd", {}, ...value));
  add("layer", row.layer);
  add("runs", count(row.start) + " to " + count(row.end) + ", " + count(row.end - row.start) + " cycles");
  if (row.start > row.issue) add("issued", count(row.issue) + ", " + count(row.start - row.issue) + " cycles before");
  const last = near.find(one => one.index === row.last);
  if (last) add("held up by", link(last), " until " + count(last.end));
  for (const [queue, index] of Object.entries(row.waits)) { const one = near.find(other => other.index === index); if (one) add("waits for " + queue, link(one), " done at " + count(one.end)); }
  if (row.before >= 0) { const one = near.find(other => other.index === row.before); add("before it in " + row.queue, link(one), " done at " + count(one.end)); }
  if (followers.length) add("waited for by", ...followers.flatMap((one, i) => i ? [", ", link(one)] : [link(one)]));
  const operands = element("tbody");
  for (const one of row.operands) {
    const banks = one.memory !== "local" ? "" : one.last_bank !== undefined && one.last_bank !== one.bank ? one.bank + "–" + one.last_bank : String(one.bank);
    const where = hex(one.address) + (one.bus ? " (bus " + hex(one.bus) + ")" : ""), inside = one.object ? one.object + (one.from !== undefined && one.address > one.from ? " + " + hex(one.address - one.from) : "") : "";
    operands.append(element("tr", {}, ...[[one.field], [one.memory], [where], [inside, "wrap"], [one.size ? size(one.size) : ""], [banks]].map(([words, kind]) => element("td", {class: "text" + (kind ? " " + kind : "")}, words))));
  }
  const heads = ["operand", "memory", "address", "object", "size", "bank"].map(word => element("th", {scope: "col", class: "text"}, word));
  return element("div", {class: "card code-facts"}, element("code", {class: "line"}, row.text), list,
    ...(row.operands.length ? [element("div", {class: "wide", tabindex: "0", role: "region", "aria-label": "Operands of the instruction"}, element("table", {"aria-label": "Operands"}, element("thead", {}, element("tr", {}, ...heads)), operands))] : []));
}
