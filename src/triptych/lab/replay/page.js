// The replay: a tree of visited prefixes, the tokens of the row, and the events, at one step at a time.
// Step 0 is the prompt alone; step k is what stands after the k-th event, a run of "stay" being one.
// A page has one side or two; both follow one player, aligned by the step or by the questions asked.
"use strict";
document.documentElement.classList.add("scripted");
if (window !== window.parent) document.documentElement.classList.add("framed");  // the page around it has the name and the theme

// One side: its elements have ids that end with `suffix`; `visit(k)` is asked for when a step is clicked.
function makeSide(data, suffix, visit) {
  const $ = (id) => document.getElementById(id + suffix);
  const BACK = ["backtrack", "restart", "up"];
  const SIGNS = { draw: "+", argmax: "⇧", accept: "✓", reject: "✕", backtrack: "↩", restart: "⟲", choose: "◆", down: "↓", up: "↑", stay: "·" };

  // ------------------------------------------------------------------ words and numbers
  function label(token) {
    if (token < 0) return "?";
    const name = data.names ? data.names[token] : String(token);
    return name === "" ? "∅" : name.replace(/ /g, "␣").replace(/\n/g, "⏎").replace(/\t/g, "⇥");
  }
  function cut(text, most) { return text.length > most ? text.slice(0, most - 1) + "…" : text; }
  function logOf(value) { return value === "-inf" ? -Infinity : value; }
  function shown(logValue) {
    const v = Math.exp(logValue);
    if (v === 0 && logValue > -Infinity) return "e^" + Math.round(logValue);
    if (v === 0 || v === 1) return String(v);
    if (v >= 0.995 && v < 1) return v.toPrecision(3);
    return v >= 0.01 && v < 1000 ? String(Number(v.toPrecision(2))) : v.toExponential(1).replace("+", "");
  }
  function plural(n, noun) { return n + " " + noun + (n === 1 ? "" : "s"); }
  function make(tag, attributes, text) {
    const element = document.createElement(tag);
    for (const name in attributes) element.setAttribute(name, attributes[name]);
    if (text !== undefined) element.textContent = text;
    return element;
  }
  function draw(tag, attributes, text) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const name in attributes) element.setAttribute(name, attributes[name]);
    if (text !== undefined) element.textContent = text;
    return element;
  }

  // ------------------------------------------------------------------ a row: steps, values, places
  function prepared(row) {
    const nodes = row.nodes.map(([parent, token]) => ({ parent, token, children: [], first: Infinity, values: [], refusals: [] }));
    nodes.forEach(function (node, i) {
      node.depth = i ? nodes[node.parent].depth + 1 : 0;
      if (i) nodes[node.parent].children.push(i);
    });
    const steps = [{ action: "start", node: row.origin, value: null, generator: 0, verifier: 0, generated: 0, erased: 0, times: 1 }];
    row.events.forEach(function ([action, node, value, generator, verifier], e) {
      const before = steps[steps.length - 1];
      if (!node && (action === "up" || action === "stay")) value = null;  // a walk never asks about its root
      const step = { action, node, value: value === null ? null : logOf(value), generator, verifier, times: 1,
        generated: row.generated && row.generated[e], erased: row.erased && row.erased[e] };
      if (action === "stay" && before.action === "stay" && before.node === node) {
        step.times += before.times;
        if (step.value === null) step.value = before.value;
        steps.pop();
      }
      steps.push(step);
    });
    steps.forEach(function (step, k) {
      for (let i = step.node; i >= 0 && nodes[i].first > k; i = nodes[i].parent) nodes[i].first = k;
      if (step.value !== null) nodes[step.node].values.push([k, step.value]);
      if (step.action === "reject") nodes[step.node].refusals.push(k);
    });
    return Object.assign({ source: row, nodes, steps, lines: lineUp(nodes) }, scaleOf(steps));
  }
  function scaleOf(steps) {
    // Verdicts have the scale 0 to 1. Where a row went on with values below one half, or above 1,
    // they are weights: the scale is that of their logarithms, from the least to the largest.
    const said = steps.filter((s) => s.value !== null), finite = said.map((s) => s.value).filter(Number.isFinite);
    const most = finite.reduce((a, b) => Math.max(a, b), -Infinity), least = finite.reduce((a, b) => Math.min(a, b), Infinity);
    const weights = most > 1e-9 || said.some((s) => s.action !== "reject" && s.value < Math.log(0.5) && Number.isFinite(s.value));
    if (!weights) return { place: Math.exp, low: "0", high: "1" };
    const width = most - least;
    return { place: (v) => (v === -Infinity ? 0 : width ? Math.max(0.1, (v - least) / width) : 1), low: shown(least), high: shown(most) };
  }
  function lineUp(nodes) {
    // A node's first child goes on along its line; each other child begins a line below.
    let lines = 1;
    const stack = [[0, 0, true]];
    while (stack.length) {
      const [i, line, first] = stack.pop();
      nodes[i].line = first ? line : lines++;
      const children = nodes[i].children;
      for (let c = children.length - 1; c >= 0; c--) stack.push([children[c], nodes[i].line, c === 0]);
    }
    return lines;
  }
  function path(nodes, i) {
    const found = [];
    for (; i > 0; i = nodes[i].parent) found.push(i);
    return found.reverse();
  }
  function isAbove(nodes, upper, lower) {
    while (nodes[lower].depth > nodes[upper].depth) lower = nodes[lower].parent;
    return lower === upper;
  }

  // ------------------------------------------------------------------ the tree
  const tree = $("tree"), canvas = $("canvas");
  let row, at, scale = 1, drawn, sizes, near = false, placed = new Map();
  const MANY_LINES = 24; // a larger tree is drawn near the row only, unless asked for
  function drawTree() {
    const labels = row.nodes.slice(1).map((n) => Array.from(cut(label(n.token), 10)).length);
    const box = Math.max(24, labels.reduce((a, b) => Math.max(a, b), 1) * 8 + 12);
    const deepest = row.nodes.reduce((a, n) => Math.max(a, n.depth), 0);
    const prompt = row.source.prompt, start = prompt.length ? (prompt.length > 4 ? "…" : "") + cut(prompt.slice(-4).map(label).join(""), 10) : "start";
    const lead = Math.max(box, Array.from(start).length * 7 + 12);
    sizes = { box, gap: 16, row: 46, x: (depth) => (depth ? 16 + lead + 16 + (depth - 1) * (box + 16) : 16), lead };
    sizes.deepest = deepest;
    tree.replaceChildren();
    const edges = draw("g", {}), boxes = draw("g", {}), jump = draw("g", { class: "leap" });
    drawn = row.nodes.map(function (node, i) {
      const width = i ? box : lead;
      const g = draw("g", { class: "node future" + (i ? "" : " prompt-node") });
      const rect = draw("rect", { class: "box unasked", width, height: 24, rx: 4 });
      const value = draw("text", { class: "value", x: width / 2, y: 35 });
      g.append(draw("title", {}, i ? path(row.nodes, i).map((j) => label(row.nodes[j].token)).join(" ") : "the prompt"),
        rect, draw("text", { x: width / 2, y: 16.5 }, i ? cut(label(node.token), 10) : start), value,
        draw("path", { class: "cross", d: "M" + (width - 5) + " -3l8 8m0-8-8 8" }),
        draw("path", { class: "more", d: "M" + (width + 4) + " 8l4 4-4 4" }));
      g.addEventListener("click", () => visit(node.first));
      boxes.append(g);
      const edge = i ? draw("path", { class: "edge future" }) : null;
      if (edge) edges.append(edge);
      return { g, rect, value, edge };
    });
    tree.append(edges, boxes, jump);
    layOut();
  }
  function layOut() {
    // The whole tree has its places once and for all; near the row they change at every step.
    placed = new Map();
    drawn.forEach(function (d) { for (const e of [d.g, d.edge]) if (e) e.classList.add("future"); });
    tree.classList.toggle("near", near);
    let most = row.lines;
    if (near) most = row.nodes.reduce((a, n) => Math.max(a, n.children.length + 1), 1);
    else row.nodes.forEach((node, i) => put(i, node.line));
    sizes.width = sizes.x(sizes.deepest + 1) + 16;
    sizes.height = most * sizes.row + 22;
    $("two").style.setProperty("--need", sizes.height + 18 + "px");
    $("whole").setAttribute("aria-pressed", String(!near));
    $("close").setAttribute("aria-pressed", String(near));
    zoom(Math.max(1, Math.min(1.5, fitting())));
  }
  function put(i, line) {
    const node = row.nodes[i], d = drawn[i], x = sizes.x(node.depth), y = 18 + line * sizes.row;
    placed.set(i, { x, y, middle: x + (i ? sizes.box : sizes.lead) / 2 });
    d.g.setAttribute("transform", "translate(" + x + " " + y + ")");
    if (!i) return;
    const above = placed.get(node.parent), from = above.x + (node.parent ? sizes.box : sizes.lead), y0 = above.y + 12, y1 = y + 12;
    d.edge.setAttribute("d", y0 === y1 ? "M" + from + " " + y0 + "H" + x : "M" + from + " " + y0 + "H" + (x - 8) + "V" + (y1 - 6) + "q0 6 6 6H" + x);
  }
  function show(i, on) {
    drawn[i].g.classList.toggle("future", !on);
    if (drawn[i].edge) drawn[i].edge.classList.toggle("future", !on);
  }
  function layNear() {
    // The row's path is the first line; beneath each of its nodes stand the other children seen.
    const was = new Set(placed.keys()), line = [0, ...path(row.nodes, row.steps[at].node)];
    placed = new Map();
    line.forEach((i) => put(i, 0));
    line.forEach(function (i, depth) {
      let down = depth + 1 < line.length ? 1 : 0;
      for (const child of row.nodes[i].children) if (child !== line[depth + 1] && row.nodes[child].first <= at) put(child, down++);
    });
    was.forEach((i) => { if (!placed.has(i)) show(i, false); });
    placed.forEach(function (_, i) {
      show(i, true);
      drawn[i].g.classList.toggle("deeper", !line.includes(i) && row.nodes[i].children.some((c) => row.nodes[c].first <= at));
    });
  }
  function zoom(to) {
    scale = Math.min(2.5, Math.max(0.08, to));
    tree.setAttribute("viewBox", "0 0 " + sizes.width + " " + sizes.height);
    tree.setAttribute("width", sizes.width * scale);
    tree.setAttribute("height", sizes.height * scale);
  }
  function fitting() { return Math.min(canvas.clientWidth / sizes.width, canvas.clientHeight / sizes.height); }
  function follow() {
    const spot = placed.get(row.steps[at].node), x = spot.middle * scale, y = (spot.y + 12) * scale;
    if (x < canvas.scrollLeft + 40 || x > canvas.scrollLeft + canvas.clientWidth - 60) canvas.scrollLeft = x - canvas.clientWidth * 0.6;
    if (y < canvas.scrollTop + 30 || y > canvas.scrollTop + canvas.clientHeight - 60) canvas.scrollTop = y - canvas.clientHeight * 0.5;
  }
  function latest(pairs, k) {
    let low = 0, high = pairs.length;
    while (low < high) { const mid = (low + high) >> 1; if ((Array.isArray(pairs[mid]) ? pairs[mid][0] : pairs[mid]) <= k) low = mid + 1; else high = mid; }
    return low ? pairs[low - 1] : null;
  }
  function colour(i) {
    const { rect, value, g } = drawn[i], node = row.nodes[i], found = latest(node.values, at);
    g.classList.toggle("refused", latest(node.refusals, at) !== null);
    rect.classList.toggle("unasked", found === null);
    value.textContent = found === null ? "" : shown(found[1]);
    if (found === null) { rect.removeAttribute("style"); return; }
    const t = Math.min(1, Math.max(0, row.place(found[1]))), hue = t < 0.5 ? "--bad" : "--good", amount = Math.abs(2 * t - 1) * 60;
    rect.setAttribute("style", "--fill:color-mix(in oklab,var(" + hue + ") " + amount.toFixed(1) + "%,var(--paper));--stroke:color-mix(in oklab,var(" + hue + ") " + (40 + amount).toFixed(1) + "%,var(--control-2))");
  }
  function light(i, on) {
    for (; i >= 0; i = row.nodes[i].parent) {
      drawn[i].g.classList.toggle("on", on);
      if (drawn[i].edge) drawn[i].edge.classList.toggle("on", on);
    }
  }
  let byFirst = [];
  function updateTree(was) {
    // Only what changed between the two steps is touched.
    const low = Math.min(was, at), high = Math.max(was, at);
    if (near) layNear();
    else for (let i = byFirst.findIndex((n) => row.nodes[n].first > low); i >= 0 && i < byFirst.length && row.nodes[byFirst[i]].first <= high; i++) {
      show(byFirst[i], row.nodes[byFirst[i]].first <= at);
    }
    const touched = new Set();
    for (let k = low; k <= high; k++) touched.add(row.steps[Math.max(0, k)].node);
    touched.forEach(colour);
    if (was >= 0) { light(row.steps[was].node, false); drawn[row.steps[was].node].g.classList.remove("here"); }
    light(row.steps[at].node, true);
    drawn[row.steps[at].node].g.classList.add("here");
    leap();
    follow();
  }
  function leap() {
    const layer = tree.querySelector(".leap"), step = row.steps[at], before = at ? row.steps[at - 1] : step;
    layer.replaceChildren();
    if (!BACK.includes(step.action) || before.node === step.node) return;
    const from = placed.get(before.node), to = placed.get(step.node);
    if (!from) return;
    const x0 = from.middle, y0 = from.y - 3, x1 = to.middle, y1 = to.y - 5;
    const lift = Math.max(4, Math.min(y0, y1) - 20);
    layer.append(draw("path", { class: "jump", d: "M" + x0 + " " + y0 + "C" + (x0 - 8) + " " + lift + " " + (x1 + 8) + " " + lift + " " + x1 + " " + y1 }),
      draw("path", { class: "tip", d: "M" + x1 + " " + (y1 + 4) + "l-5 -8h10z" }));
  }

  // ------------------------------------------------------------------ the tokens and the numbers
  function lost(k) {
    // What the step took away: erased tokens, or a refused one that another takes the place of.
    const step = row.steps[k], before = k ? row.steps[k - 1] : step;
    if (BACK.includes(step.action) && isAbove(row.nodes, step.node, before.node)) return path(row.nodes, before.node).slice(row.nodes[step.node].depth);
    const replaced = grows(step.action) && before.action === "reject" && before.node !== step.node && row.nodes[before.node].parent === row.nodes[step.node].parent;
    return replaced ? [before.node] : [];
  }
  function grows(action) { return action === "draw" || action === "argmax" || action === "down"; }
  function showTokens() {
    const step = row.steps[at], kept = path(row.nodes, step.node), gone = lost(at), box = $("tokens");
    const cells = row.source.prompt.map((token) => make("span", { class: "token prompt" }, label(token)));
    kept.forEach(function (i, place) {
      const end = place === kept.length - 1, name = label(row.nodes[i].token);
      if (end && grows(step.action)) gone.forEach((j) => cells.push(struck(j)));
      cells.push(make("span", { class: "token" + (row.nodes[i].token < 0 ? " prompt" : end && step.action === "reject" ? " refused" : end && grows(step.action) ? " new" : "") }, name));
    });
    if (!grows(step.action)) gone.forEach((j) => cells.push(struck(j)));
    if (!cells.length) cells.push(make("span", { class: "token empty" }, "nothing yet"));
    box.replaceChildren(...cells);
    box.scrollTop = box.scrollHeight;
  }
  function struck(i) { return make("del", { class: "token struck" }, label(row.nodes[i].token)); }
  function words(k) {
    const step = row.steps[k], name = step.node ? label(row.nodes[step.node].token) : "", gone = lost(k).length;
    switch (step.action) {
      case "start": return ["the prompt", ""];
      case "draw": return ["drew", name];
      case "argmax": return ["took likeliest", name];
      case "accept": return ["accepted", name];
      case "reject": return ["refused", name];
      case "backtrack": return ["erased " + plural(gone, "token"), ""];
      case "restart": return ["started again", ""];
      case "choose": return ["went on with", name];
      case "down": return ["down to", name];
      case "up": return ["up to", name || "the prompt"];
      case "stay": return ["stayed" + (step.times > 1 ? " " + step.times + " times" : ""), ""];
      default: return [step.action, name];
    }
  }
  function showNumbers() {
    const step = row.steps[at], [what, name] = words(at), happened = $("happened");
    happened.replaceChildren(make("span", { class: "step" }, at ? "Step " + at + ": " : "Before the first step: "), what + (name ? " " : ""));
    if (name) happened.append(make("code", {}, name));
    if (step.value !== null) happened.append(", the verifier says V = " + shown(step.value));
    $("generator-calls").textContent = step.generator;
    $("verifier-calls").textContent = step.verifier;
    if (row.source.generated) { $("generated").textContent = step.generated; $("erased").textContent = step.erased; }
  }
  function kind(step) {
    if (step.action === "reject" || BACK.includes(step.action)) return "back";
    return step.action === "accept" || step.action === "choose" ? "good" : "";
  }
  let items = [];
  function listEvents() {
    items = row.steps.slice(1).map(function (step, k) {
      const button = make("button", { type: "button", class: kind(step) }), [what, name] = words(k + 1), line = make("span", { class: "what" }, what + " ");
      if (name) line.append(make("code", {}, cut(name, 14)));
      button.append(make("span", { class: "n" }, k + 1), make("span", { class: "sign", "aria-hidden": "true" }, SIGNS[step.action] || "•"), line,
        make("span", { class: "v" }, step.value === null ? "" : "V " + shown(step.value)));
      button.addEventListener("click", () => visit(k + 1));
      return button;
    });
    $("events").replaceChildren(...items.map(function (button) { const li = make("li", {}); li.append(button); return li; }));
  }
  function markEvent(was) {
    const list = $("events");
    if (was > 0 && items[was - 1]) items[was - 1].removeAttribute("aria-current");
    for (let k = Math.min(was, at) + 1; k <= Math.max(was, at); k++) if (k > 0) items[k - 1].classList.toggle("later", k > at);
    if (at === 0) { list.scrollTop = 0; return; }
    const item = items[at - 1];
    item.setAttribute("aria-current", "step");
    const y = item.parentElement.offsetTop - list.offsetTop;
    if (y < list.scrollTop || y > list.scrollTop + list.clientHeight - 40) list.scrollTop = y - list.clientHeight / 2;
  }
  // The length of the row over time, where step k stands at place(k): its course, and its refusals.
  function course(place) {
    const deepest = row.nodes.reduce((a, s) => Math.max(a, s.depth), 1);
    const y = (step) => (1 - 0.94 * row.nodes[step.node].depth / deepest - 0.03).toFixed(4);
    const bad = (s) => s.action === "reject" || s.action === "backtrack" || s.action === "restart";
    return {
      line: row.steps.map((s, k) => (k ? "H" + place(k) + "V" : "M" + place(0) + " ") + y(s)).join(""),
      marks: row.steps.map((s, k) => (bad(s) ? "M" + place(k) + " 0.8V1" : "")).join(""),
    };
  }

  // ------------------------------------------------------------------ one step
  function goTo(k) {
    const was = at;
    at = Math.min(row.steps.length - 1, Math.max(0, k));
    if (was === at) return;
    updateTree(was);
    showTokens();
    showNumbers();
    markEvent(was);
  }
  function look(closely) {
    near = closely;
    layOut();
    const now = at;
    at = -1;
    goTo(now);
  }
  $("whole").addEventListener("click", () => look(false));
  $("close").addEventListener("click", () => look(true));
  $("smaller").addEventListener("click", () => { zoom(scale / 1.3); follow(); });
  $("larger").addEventListener("click", () => { zoom(scale * 1.3); follow(); });
  $("fit").addEventListener("click", () => zoom(Math.min(1.5, fitting())));

  // ------------------------------------------------------------------ which row, and the start
  function showOutcome() {
    const source = row.source, verdict = $("verdict"), right = source.correct;
    const word = right === true ? "correct" : right === false ? "not correct" : source.complete ? "finished" : "not finished";
    verdict.className = "badge" + (right === true ? " holds" : right === false ? " fails" : "");
    verdict.replaceChildren(word + (right !== null && !source.complete ? ", not finished" : ""));
    if (right !== null) {
      const svg = draw("svg", { class: "glyph", "aria-hidden": "true" });
      svg.append(draw("use", { href: right ? "#glyph-holds" : "#glyph-fails" }));
      verdict.prepend(svg);
    }
    const glued = data.names && data.names.every((name) => Array.from(name).length === 1);
    const join = glued || (data.names && data.names.some((name) => name.includes(" "))) ? "" : " ";
    const text = (tokens) => tokens.map(label).join(join);
    $("final").replaceChildren(make("i", {}, text(source.prompt) + (source.prompt.length ? join : "")), text(source.final));
    const t = source.totals;
    $("totals").textContent = [plural(t.generator_calls, "generator call"), plural(t.verifier_calls, "verifier call"), t.generated + " tokens generated", t.erased + " erased"].join(" · ");
    $("generated-box").hidden = $("erased-box").hidden = !source.generated;
    const remarks = [];
    if (source.reason) remarks.push("Not finished: " + source.reason + ".");
    if (source.origin) remarks.push("This row erased the last " + (source.origin === 1 ? "token" : source.origin + " tokens") + " of its prompt, which the result does not keep: ? stands for them.");
    if (!source.events.length) remarks.push("Nothing happened to this row: its prompt had its full length.");
    $("remark").textContent = remarks.join(" ");
    $("remark").hidden = !remarks.length;
  }
  function open(number) {
    row = prepared(data.rows[number]);
    at = -1;
    near = row.lines > MANY_LINES;
    byFirst = row.nodes.map((_, i) => i).sort((a, b) => row.nodes[a].first - row.nodes[b].first);
    showOutcome();
    drawTree();
    listEvents();
    items.forEach((item) => item.classList.add("later"));
  }
  return {
    open, goTo, course,
    scale: () => [row.low, row.high],
    said: () => { const [what, name] = words(at); return what + " " + name; },
    clocks: { step: () => row.steps.map((_, k) => k), cost: () => row.steps.map((s) => s.generator + s.verifier) },
  };
}

(function () {
  const $ = (id) => document.getElementById(id);
  const STEPS_A_SECOND = 2.5;
  const data = JSON.parse($("trace-data").textContent);
  const sides = data.sides.map((side, k) => makeSide(side, k ? "-" + (k + 1) : "", (step) => { player.pause(); goTo(positionOf(k, step)); }));
  let by = "step", at = -1, positions = [];
  const last = () => positions.length - 1;
  function positionOf(k, step) { return positions.findIndex((p) => p.steps[k] >= step); }
  function positionAt(value) { return positions.reduce((found, p, k) => (p.value <= value ? k : found), 0); }
  function drawTimeline() {
    const svg = $("timeline"), end = Math.max(1, positions[last()].value), paths = [];
    svg.setAttribute("viewBox", "0 0 " + end + " 1");
    sides.forEach(function (side, k) {
      const clock = side.clocks[by](), drawn = side.course((step) => clock[step]);
      paths.push(["course" + (k ? " second" : ""), drawn.line], ["refusals", drawn.marks]);
    });
    paths.push(["cursor", "M0 0V1"]);
    svg.replaceChildren(...paths.map(function ([name, d]) {
      const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
      path.setAttribute("class", name);
      path.setAttribute("d", d);
      return path;
    }));
  }
  function goTo(k) {
    at = Math.min(last(), Math.max(0, Math.round(k) || 0));
    const { value, steps } = positions[at], slider = $("slider");
    sides.forEach((side, i) => side.goTo(steps[i]));
    $("step-number").textContent = slider.value = value;
    slider.setAttribute("aria-valuetext", by + " " + value + " of " + positions[last()].value + ": " + sides.map((side) => side.said()).join("; "));
    $("first").disabled = $("back").disabled = at === 0;
    $("last").disabled = $("forward").disabled = at === last();
    document.querySelector("#timeline .cursor").setAttribute("d", "M" + value + " 0V1");
    if (!player.playing()) remember();
  }
  function remember() {
    const row = data.sides[0].rows.length > 1 ? "row=" + $("row").value + "&" : "";
    try { history.replaceState(null, "", "#" + row + by + "=" + positions[at].value); } catch (_) { /* some browsers refuse it on disk */ }
  }
  const delay = () => 1000 / (STEPS_A_SECOND * Number($("speed").value));
  const player = makePlayer({ at: () => at, last, goTo, delay, remember, from: (value) => goTo(positionAt(value)) });
  $("timeline").addEventListener("click", function (event) {
    const box = this.getBoundingClientRect();
    player.pause();
    goTo(positionAt((event.clientX - box.left) / box.width * positions[last()].value));
  });
  function align(name, value) {
    by = name;
    positions = aligned(sides.map((side) => side.clocks[by]()));
    for (const choice of document.querySelectorAll("[name=by]")) choice.checked = choice.value === by;
    $("step-count").textContent = $("slider").max = positions[last()].value;
    $("speed").value = last() > 1000 ? "20" : last() > 250 ? "5" : "1";
    drawTimeline();
    goTo(positionAt(value));
  }
  function open(number, name, value) {
    player.pause();
    sides.forEach((side) => side.open(number));
    $("row").value = String(number);
    const [low, high] = sides[0].scale();
    $("scale-low").textContent = low;
    $("scale-high").textContent = high;
    align(name, value);
  }
  for (const choice of document.querySelectorAll("[name=by]")) choice.addEventListener("change", function () {
    player.pause();
    const steps = positions[at].steps;
    align(this.value, 0);
    goTo(positions.reduce((found, p, k) => (p.steps.every((step, i) => step <= steps[i]) ? k : found), 0));
  });
  function fromAddress() {
    const asked = new URLSearchParams(location.hash.slice(1));
    const number = Math.min(data.sides[0].rows.length - 1, Math.max(0, Number(asked.get("row")) || 0));
    const name = asked.has("cost") && sides.length > 1 ? "cost" : "step", value = asked.get(name);
    open(number, name, value === "last" ? Infinity : Number(value) || 0);
  }
  data.sides[0].rows.forEach(function (source, i) {
    const ends = data.sides.map((side) => side.rows[i].correct).map((right) => (right === true ? "correct" : right === false ? "not correct" : ""));
    const option = document.createElement("option");
    option.value = i;
    option.textContent = [i, ...ends.filter(Boolean)].join(", ");
    $("row").append(option);
  });
  $("row-choice").hidden = data.sides[0].rows.length < 2;
  $("row").addEventListener("change", function () { open(Number(this.value), by, 0); });
  window.addEventListener("hashchange", fromAddress);
  fromAddress();
})();
