// Tables that sort. Rows are made once and moved, so that a thousand of them are no trouble.
function table(id, rows, columns, pick) {
  const head = make("thead"), line = make("tr"), body = make("tbody");
  const made = rows.map((row, i) => {
    const tr = make("tr");
    for (const column of columns) {
      const td = make("td", undefined, column.style);
      const shown = column.show(row, i);
      if (Array.isArray(shown)) td.append(...shown); else td.append(String(shown));
      if (column.style) td.title = td.textContent;
      tr.append(td);
    }
    if (pick) {
      tr.tabIndex = 0;
      tr.onclick = () => pick(i);
      tr.onkeydown = event => { if (event.key === "Enter") pick(i); };
    }
    return tr;
  });
  let by = null, down = false;
  for (const column of columns) {
    const th = make("th", undefined, column.style), button = make("button", column.name);
    button.type = "button";
    button.onclick = () => {
      down = by === column ? !down : !column.style;
      by = column;
      for (const other of line.children) other.removeAttribute("aria-sort");
      th.setAttribute("aria-sort", down ? "descending" : "ascending");
      const keys = rows.map(column.key), order = rows.map((row, i) => i);
      order.sort((a, b) => (keys[a] < keys[b] ? -1 : keys[a] > keys[b] ? 1 : a - b) * (down ? -1 : 1));
      body.append(...order.map(i => made[i]));
    };
    th.append(button);
    line.append(th);
  }
  head.append(line);
  body.append(...made);
  $(id).append(head, body);
  return made;
}
const column = (name, key, show, style) => ({name, style, key: row => row[key], show: row => show ? show(row[key]) : row[key]});
const whole = value => number(value);
const limit = why => { const dot = make("i", undefined, "dot"); dot.style.background = "var(--" + (why || "fade") + ")"; return [dot, why]; };
const greatest = Math.max(1e-9, ...[...D.layers, ...D.groups].map(one => one.share));
const FIGURES = [
  column("time", "microseconds", micro), column("cycles", "cycles", whole),
  column("share", "share", value => [bar(value / greatest), percent(value)]), column("limited by", "limited_by", limit, "text"),
  column("busiest", "busiest", whole), column("matrix", "matrix_busy", whole), column("vector", "vector_busy", whole),
  column("DMA", "dma_busy", whole), column("array", "utilization", percent),
  column("GOP", "gop", value => value ? +value.toPrecision(3) : "0"), column("GOP/s", "gops", value => number(value, 1)),
  column("constants", "weights_in", bytes), column("maps in", "features_in", bytes), column("maps out", "features_out", bytes),
  column("GB/s", "bandwidth", value => number(value, 2)), column("on chip", "on_chip", bytes),
];
const ORDER = {name: "#", key: (row, i) => i, show: (row, i) => i};
const LISTED = {name: "layers", style: "text", key: row => row.layers.length, show: row => row.layers.join(", ")};

const layerRows = table("layers", D.layers, [ORDER, column("layer", "name", null, "text name"), ...FIGURES], choose);
const counted = shown => { $("layer-count").textContent = shown === layerRows.length ? number(shown) : number(shown) + " of " + number(layerRows.length); };
counted(layerRows.length);
$("filter").oninput = () => {
  const words = $("filter").value.toLowerCase().split(/\s+/);
  let shown = 0;
  layerRows.forEach((row, i) => {
    const fits = words.every(word => (D.layers[i].name + " " + D.layers[i].limited_by).toLowerCase().includes(word));
    row.hidden = !fits;
    shown += fits;
  });
  counted(shown);
};
let marked = -1;
whenChosen.push(() => {
  if (marked >= 0) layerRows[marked].classList.remove("chosen");
  marked = chosen;
  if (chosen < 0) return;
  const row = layerRows[chosen], box = row.closest(".scroll");
  row.classList.add("chosen");
  if (row.offsetTop < box.scrollTop + 40 || row.offsetTop > box.scrollTop + box.clientHeight - 60) box.scrollTop = row.offsetTop - box.clientHeight / 2;
});

function section(id, there, fill) {
  $(id).hidden = !there;
  within.querySelector('nav a[href="#' + id + '"]').hidden = !there;
  if (there) fill();
}
section("grouped", D.groups.some(group => group.layers.length > 1), () => table("groups", D.groups, [ORDER, LISTED, column("tiles", "tiles"), ...FIGURES]));
section("hosted", D.host.length > 0, () => table("host", D.host, [
  column("subgraph", "name", null, "text"), LISTED,
  {name: "time", key: row => row.seconds || 0, show: row => row.seconds === null ? "not timed" : micro(row.seconds * 1e6)},
]));
