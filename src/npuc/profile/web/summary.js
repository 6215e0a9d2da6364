// The head of the page, and the bar at its foot about the layer that is chosen.
$("title").textContent = D.model;
$("machine").textContent = [
  D.target, M.cores + (M.cores === 1 ? " core" : " cores") + " at " + number(M.clock / 1e6, 3) + " MHz",
  number(M.peak / 1e9, 1) + " GOP/s", "DRAM " + number(M.bandwidth / 1e9, 2) + " GB/s", bytes(M.local) + " local memory a core",
].join("  ·  ");

{
  const key = (name, value, note, part) => {
    const card = make("div", undefined, "card");
    card.append(make("span", name), make("strong", value), make("span", note));
    if (part !== undefined) {
      const meter = make("div", undefined, "meter"), inside = make("i");
      inside.style.width = Math.min(100, 100 * part) + "%";
      meter.append(inside);
      card.append(meter);
    }
    $("key").append(card);
  };
  const bound = "buffered" in S.bounds ? "buffered" : Object.keys(S.bounds)[0];
  key("time", micro(S.microseconds), number(S.cycles) + " cycles");
  key("throughput", number(S.inferences_per_second, S.inferences_per_second < 1000 ? 1 : 0) + " /s", "inferences" + (D.host.length ? ", CPU included" : ""));
  key("array in use", percent(S.utilization), number(S.gops, 1) + " of " + number(M.peak / 1e9) + " GOP/s", S.utilization);
  if (bound) key("of the " + bound + " bound", percent(S.of_bound[bound]), number(S.bounds[bound]) + " cycles at least", S.of_bound[bound]);
  key("DRAM", number(S.bandwidth, 2) + " GB/s", "of " + number(M.bandwidth / 1e9, 2), S.bandwidth * 1e9 / M.bandwidth);
  key("on chip, peak", bytes(S.on_chip), "of " + bytes(M.local), S.on_chip / M.local);
  if (D.host.length) key("on the CPU", micro(S.host_milliseconds * 1000), D.host.every(one => one.seconds !== null) ? "as measured on the host" : "an estimate");

  for (const why of REASONS) {
    const part = S.cycles ? S.charged[why] / S.cycles : 0, piece = make("i"), word = make("span"), dot = make("i", undefined, "dot");
    piece.style.background = dot.style.background = "var(--" + why + ")";
    piece.style.flexGrow = part;
    piece.title = why + ": " + percent(part);
    if (part) $("reasons").append(piece);
    word.append(dot, why + " " + percent(part));
    $("reasons-legend").append(word);
  }
  $("reasons").setAttribute("aria-label", $("reasons-legend").textContent);
  const figures = [
    ["work", number(S.gop, 3) + " GOP"], ["mostly limited by", S.limited_by || "nothing"],
    ["matrix engine busy", percent(S.matrix_share)], ["vector engine busy", percent(S.vector_share)],
    ["DMA busy", percent(S.dma_share)], ["constants in", bytes(S.weights_in)],
    ["feature maps in", bytes(S.features_in)], ["feature maps out", bytes(S.features_out)],
  ];
  if (S.shared) figures.push(["through shared memory", bytes(S.shared)]);
  for (const name in S.bounds) figures.push([name + " bound", number(S.bounds[name]) + " cycles (" + percent(S.of_bound[name]) + ")"]);
  for (const [name, value] of figures) {
    const pair = make("div");
    pair.append(make("dt", name), make("dd", value));
    $("figures").append(pair);
  }
}

function describe(layer) {
  const one = D.layers[layer];
  return [
    one.name, micro(one.microseconds) + ", " + percent(one.share) + " of the time",
    number(one.cycles) + " cycles, mostly " + (one.limited_by || "nothing") + "; " + percent(one.utilization) + " of the array in use",
    bytes(one.weights_in) + " of constants, " + bytes(one.features_in) + " in, " + bytes(one.features_out) + " out",
  ];
}
whenChosen.push(() => {
  $("chosen").hidden = chosen < 0;
  if (chosen < 0) return;
  const [name, ...rest] = describe(chosen);
  $("chosen-text").replaceChildren(make("strong", name), "  " + rest.slice(0, 2).join("  ·  "));
});
$("chosen-clear").onclick = () => choose(chosen);
addEventListener("keydown", event => { if (event.key === "Escape" && chosen >= 0) choose(chosen); }, whileShown);
for (const link of within.querySelectorAll("nav a")) link.onclick = event => {
  // The address of a file on disk stays as it is.
  event.preventDefault();
  within.querySelector(link.getAttribute("href")).scrollIntoView({behavior: "smooth"});
};
