// What is known of the layer that is chosen: its attributes, its types, its constants, and the figures of other views.
async function showDetails(place, file, form, node, figures) {
  const rows = [["op", node.kind], ["result", node.type], ["device", node.device], ["part", node.subgraph]];
  if (node.macs) rows.push(["MACs", count(node.macs)]);
  if (node.parameters) rows.push(["parameters", count(node.parameters)]);
  for (const [name, value] of Object.entries(figures || {})) rows.push([name, value]);
  const list = element("dl", {class: "facts"});
  for (const [name, value] of rows) if (value) list.append(element("dt", {}, name), element("dd", {}, value));
  place.replaceChildren(element("h2", {}, node.name), list);
  const attributes = Object.entries(node.attributes || {});
  if (attributes.length) {
    const box = element("dl", {class: "facts"});
    for (const [name, value] of attributes) box.append(element("dt", {}, name), element("dd", {}, value));
    place.append(element("h3", {}, "Attributes"), box);
  }
  const tensor = (node.tensors || [])[0];
  if (!tensor || node.device === "input" || node.device === "output" || node.subgraph) return;
  const constants = element("div", {class: "constants"});
  place.append(constants);
  let answer;
  try { answer = await ask("node", {file, form, layer: tensor}); } catch (error) { return; }
  if (!constants.isConnected) return;
  for (const operand of answer.operands) {
    if (!operand.constant) continue;
    constants.append(element("h3", {}, (operand.field ? operand.field + ": " : "") + cut(operand.name, 40)), element("p", {class: "soft"}, operand.type + ", " + operand.low.toPrecision(4) + " to " + operand.high.toPrecision(4)));
    constants.append(histogram([operand.histogram], operand.low, operand.high));
    const map = heatMap(operand.map, operand.low, operand.high, RAMP);
    map.setAttribute("aria-label", "The first map of " + operand.name);
    constants.append(map);
  }
}
