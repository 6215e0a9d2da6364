// A graph whose scopes fold: which boxes are visible, and which edges run between them.
class FoldedGraph {
  constructor(graph) {
    this.graph = graph;
    this.children = graph.scopes.map(() => ({nodes: [], scopes: []}));
    graph.nodes.forEach((node, i) => this.children[node.scope].nodes.push(i));
    graph.scopes.forEach((scope, i) => { if (scope.parent >= 0) this.children[scope.parent].scopes.push(i); });
    this.members = graph.scopes.map(() => []);
    graph.nodes.forEach((node, i) => { for (let at = node.scope; at >= 0; at = graph.scopes[at].parent) this.members[at].push(i); });
    this.open = new Set([0]);
    this.openWhatFits(80);
    this.layouts = new Map();
    this.edgesAt = this.liftEdges();
  }
  // Opens level after level while no more boxes than these are drawn: nothing is gained by hiding thirty layers.
  openWhatFits(most) {
    const sizeOf = scope => this.children[scope].nodes.length + this.children[scope].scopes.length;
    let level = this.children[0].scopes, drawn = sizeOf(0);
    while (level.length && (drawn += level.reduce((sum, scope) => sum + sizeOf(scope) - 1, 0)) <= most) {
      for (const scope of level) this.open.add(scope);
      level = level.flatMap(scope => this.children[scope].scopes);
    }
  }
  // The name of a node without the scopes that are drawn around it.
  shortName(node) {
    let rest = this.graph.nodes[node].name.replace(/^\/+(?=.)/, "");
    for (const scope of this.pathOf(node)) for (const part of this.graph.scopes[scope].name.split("/")) if (part && rest.startsWith(part) && "/.".includes(rest[part.length] || "-")) rest = rest.slice(part.length + 1);
    return rest || this.graph.nodes[node].name;
  }
  pathOf(node) {
    const path = [];
    for (let at = this.graph.nodes[node].scope; at >= 0; at = this.graph.scopes[at].parent) path.push(at);
    return path.reverse();
  }
  // Every edge belongs to the innermost scope that has both ends; there it runs between a node or scope and another. In the
  // scopes below, on the way to its ends, it is an edge from or to the border.
  liftEdges() {
    const at = this.graph.scopes.map(() => new Map());
    const add = (scope, from, to) => {
      const key = from + ">" + to, known = at[scope].get(key);
      if (known) known.count += 1; else at[scope].set(key, {from, to, count: 1});
    };
    const paths = this.graph.nodes.map((_, i) => this.pathOf(i));
    for (const [from, to] of this.graph.edges) {
      const a = paths[from], b = paths[to];
      let common = 0;
      while (common + 1 < a.length && common + 1 < b.length && a[common + 1] === b[common + 1]) common += 1;
      const ends = (path, node) => path.length > common + 1 ? "s" + path[common + 1] : "n" + node;
      add(a[common], ends(a, from), ends(b, to));
      for (let i = common + 1; i < a.length; i++) add(a[i], i + 1 < a.length ? "s" + a[i + 1] : "n" + from, "out");
      for (let i = common + 1; i < b.length; i++) add(b[i], "in", i + 1 < b.length ? "s" + b[i + 1] : "n" + to);
    }
    return at.map(edges => [...edges.values()]);
  }
  toggle(scope) {
    if (this.open.has(scope)) this.open.delete(scope); else this.open.add(scope);
    this.forget(scope);
  }
  forget(scope) { for (let at = scope; at >= 0; at = this.graph.scopes[at].parent) this.layouts.delete(at); }
  openAll() { this.graph.scopes.forEach((_, i) => this.open.add(i)); this.layouts.clear(); }
  foldAll() { this.open = new Set([0]); this.layouts.clear(); }
  // Opens every scope around a node.
  reveal(node) {
    for (const scope of this.pathOf(node)) if (!this.open.has(scope)) { this.open.add(scope); this.forget(scope); }
  }
}
