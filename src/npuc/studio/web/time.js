// The profile of a program: the report of `npuc profile`, in this page.
let profileShown = null;
async function timeView(place) {
  const file = state.project.files.find(one => one.name === state.a);
  if (!file || file.kind !== "program") {
    place.append(element("p", {class: "empty"}, "Time is known of compiled models (.npu). ‘Change’ compiles this one, or: npuc compile " + state.a + " --target NAME"));
    return;
  }
  place.append(element("p", {class: "soft"}, "Simulating…"));
  const data = await ask("time", {file: state.a});
  if (!place.isConnected) return;
  const inside = element("div", {class: "profile"});
  inside.innerHTML = PROFILE_BODY;
  // The page has its own theme button, tip and heading.
  inside.querySelector("#theme").remove();
  place.replaceChildren(inside);
  if (state.b && state.project.files.some(one => one.name === state.b && one.kind === "program")) {
    const other = await ask("time", {file: state.b});
    inside.prepend(timeAgainst(data, other));
  }
  const code = element("section", {id: "code", hidden: true, "aria-label": "Instructions"});
  inside.querySelector("#over-time").after(code);
  const shown = profileView(data, inside, at => attempt(() => showInstruction(code, shown, at)));
  profileShown = shown;
  if (embedded && byId("chosen-graph")) byId("chosen-graph").hidden = true;
}
function timeAgainst(ours, other) {
  const rows = [
    ["cycles", "cycles", value => count(value)], ["time", "microseconds", value => count(value, 1) + " µs"], ["array in use", "utilization", share],
    ["constants in", "weights_in", size], ["feature maps in", "features_in", size], ["feature maps out", "features_out", size], ["on chip, peak", "on_chip", size],
  ];
  const body = element("tbody");
  for (const [title, key, words] of rows) {
    const a = ours.summary[key], b = other.summary[key];
    body.append(element("tr", {}, element("th", {scope: "row", class: "text"}, title), element("td", {}, words(a)), element("td", {}, words(b)), element("td", {}, b ? (a / b).toFixed(3) : "")));
  }
  const head = element("tr", {}, ...["", cut(state.a, 40), cut(state.b, 40), "ratio"].map(word => element("th", {scope: "col"}, word)));
  return element("div", {class: "card flush against"}, element("table", {"aria-label": "Two programs"}, element("thead", {}, head), body));
}
