// On which device each layer would run on a machine, why it is not the NPU, and what would bring it there.
async function placementView(place) {
  const kindOf = name => (state.project.files.find(one => one.name === name) || {kind: ""}).kind;
  // Of a program the reasons are gone; the network beside it has them.
  const asked = kindOf(state.a) === "program" && ["model", "network"].includes(kindOf(state.b)) ? state.b : state.a;
  const body = element("div");
  if (kindOf(asked) === "program") {
    const graph = await ask("graph", {file: state.a, form: formShown()});
    const hosted = graph.nodes.filter(node => node.device === "cpu");
    place.append(element("h2", {}, hosted.length ? hosted.length + " parts run on the CPU" : "All layers run on the NPU"));
    if (hosted.length) place.append(element("div", {class: "card flush scroll"}, sortedTable(hosted, [["layer", node => node.name, node => node.name, "text"], ["op", node => node.kind, node => node.kind, "text"]], null, "Layers on the CPU").table));
    place.append(element("p", {class: "soft"}, "Choose the network that it was compiled from, above or beside it, to see reasons and what would change them."));
    return;
  }
  const {targets} = await ask("targets");
  const choice = element("select", {id: "target", onchange: () => { state.target = choice.value; render(); }}, ...targets.map(name => element("option", {value: name}, name)));
  choice.value = state.target || (targets.includes("edge-4t") ? "edge-4t" : targets[0]);
  state.target = choice.value;
  place.append(element("div", {class: "split"}, element("h2", {}, "Where layers of " + cut(asked, 40) + " run"), element("div", {class: "tools"}, element("label", {}, "Target ", choice))), body);
  const render = () => attempt(async () => {
    body.replaceChildren(element("p", {class: "soft"}, "Asking the compiler…"));
    const answer = await ask("placement", {file: asked, target: choice.value});
    say("");
    if (!body.isConnected) return;
    const verdict = element("p", {id: "verdict"}, count(answer.npu_layers) + " layers on the NPU with " + share(answer.npu_share) + " of the multiplications, " + count(answer.cpu_layers) + " on the CPU.");
    const rows = [...answer.layers].sort((a, b) => (a.device === "cpu" ? 0 : 1) - (b.device === "cpu" ? 0 : 1));
    const columns = [
      ["layer", row => cut(row.layer || row.name, 46), row => row.layer || row.name, "text name"], ["op", row => row.kind, row => row.kind, "text"], ["device", row => row.device, row => row.device, "text"],
      ["reason", row => row.reason, row => row.reason, "text wrap"], ["what would change it", row => row.lever, row => row.lever, "text wrap"], ["MACs", row => row.macs ? count(row.macs) : "", row => row.macs],
    ];
    body.replaceChildren(verdict, ...answer.notes.map(note => element("p", {class: "soft"}, note)), element("div", {class: "card flush scroll"}, sortedTable(rows, columns, row => change({layer: row.name, tab: "graph"}), "Placement of layers").table));
  });
  await render();
}
