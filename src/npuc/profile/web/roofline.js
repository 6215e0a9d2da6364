// Operations a second over operations a byte of DRAM: a dot a layer, as large as its share.
function drawRoofline() {
  const svg = $("roofline");
  svg.replaceChildren();
  const points = [];
  D.layers.forEach((layer, i) => {
    const moved = layer.weights_in + layer.features_in + layer.features_out;
    if (layer.gop > 0 && layer.gops > 0) points.push({i, layer, x: layer.gop * 1e9 / Math.max(1, moved), y: layer.gops * 1e9});
  });
  const ridge = M.peak / M.bandwidth, xs = points.map(point => point.x), ys = points.map(point => point.y);
  const low = Math.min(ridge / 100, ...xs) / 1.5, high = Math.min(ridge * 1e4, Math.max(ridge * 100, ...xs));
  const least = Math.min(M.peak / 1e3, ...ys) / 2, most = M.peak * 2;
  const X = value => 74 + Math.log(Math.min(value, high) / low) / Math.log(high / low) * 866;
  const Y = value => 384 - Math.log(value / least) / Math.log(most / least) * 364;
  for (let d = Math.ceil(Math.log10(low)); d <= Math.log10(high); d++) {
    const x = X(Math.pow(10, d));
    draw(svg, "line", {class: "grid", x1: x, x2: x, y1: 20, y2: 384});
    draw(svg, "text", {x, y: 401, "text-anchor": "middle"}, number(Math.pow(10, d), 4));
  }
  for (let d = Math.ceil(Math.log10(least)); d <= Math.log10(most); d++) {
    const y = Y(Math.pow(10, d));
    draw(svg, "line", {class: "grid", x1: 74, x2: 940, y1: y, y2: y});
    draw(svg, "text", {x: 66, y: y + 4, "text-anchor": "end"}, number(Math.pow(10, d) / 1e9, 6));
  }
  draw(svg, "text", {x: 507, y: 422, "text-anchor": "middle"}, "operations a byte of DRAM");
  draw(svg, "text", {x: 74, y: 13}, "GOP/s");
  const from = Math.max(low, least / M.bandwidth), corners = [[X(from), Y(from * M.bandwidth)], [X(ridge), Y(M.peak)], [X(high), Y(M.peak)]];
  draw(svg, "polyline", {class: "roof", points: corners.map(corner => corner.join(",")).join(" ")});
  draw(svg, "text", {x: 936, y: Y(M.peak) - 8, "text-anchor": "end"}, "array: " + number(M.peak / 1e9, 1) + " GOP/s");
  const middle = Math.sqrt(from * ridge), slope = Math.atan2(corners[1][1] - corners[0][1], corners[1][0] - corners[0][0]) * 180 / Math.PI;
  draw(svg, "text", {transform: "translate(" + X(middle) + "," + (Y(middle * M.bandwidth) - 8) + ") rotate(" + slope + ")", "text-anchor": "middle"}, "DRAM: " + number(M.bandwidth / 1e9, 2) + " GB/s");
  // Small ones over large ones, the chosen one over all.
  points.sort((a, b) => (a.i === chosen) - (b.i === chosen) || b.layer.share - a.layer.share);
  for (const point of points) {
    const on = chosen < 0 || chosen === point.i;
    const dot = draw(svg, "circle", {
      cx: X(point.x), cy: Y(point.y), r: 4 + 16 * Math.sqrt(point.layer.share), "fill-opacity": on ? 0.8 : 0.9,
      fill: on ? "var(--" + (point.layer.limited_by || "waiting") + ")" : "var(--fade)",
    });
    dot.onpointermove = event => hint(event, [
      point.layer.name, number(point.layer.gops, 1) + " GOP/s, " + number(point.x, 1) + " operations a byte",
      percent(point.layer.share) + " of the time, mostly " + point.layer.limited_by,
    ]);
    dot.onpointerleave = event => hint(event, null);
    dot.onclick = () => choose(point.i);
  }
}
whenChosen.push(drawRoofline);
