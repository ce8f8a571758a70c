// The replay of spins: two grids, their numbers and three charts, at one round at a time.
(function () {
  "use strict";
  document.documentElement.classList.add("scripted");
  const $ = (id) => document.getElementById(id);
  const data = JSON.parse($("replay-data").textContent);
  const rounds = data.sides[0].states.length - 1;
  const ROUNDS_A_SECOND = 2.5;
  const LOOKS = ["gibbs", "other"];
  // A position has a round for each side: the same one, or the last that its passes have reached.
  const clocks = { round: data.sides.map((side) => side.states.map((_, k) => k)), pass: data.sides.map((side) => side.passes) };
  let by = "round", positions = aligned(clocks.round), place = -1, at = [-1, -1];
  const last = () => positions.length - 1;
  function draw(tag, attributes, text) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const name in attributes) element.setAttribute(name, attributes[name]);
    if (text !== undefined) element.textContent = text;
    return element;
  }
  function shown(value) { return value.toFixed(3).replace(/^-(0\.0+)$/, "$1").replace("-", "−"); }

  // ------------------------------------------------------------------ grids
  const cells = data.sides.map(function (_, k) {
    const n = data.size, svg = draw("svg", { viewBox: `0 0 ${n} ${n}`, role: "img" });
    const found = [];
    for (let i = 0; i < n * n; i++) {
      const x = i % n, y = Math.floor(i / n);
      const spin = draw("rect", { x, y, width: 1, height: 1, class: "spin" });
      const mark = draw("rect", { x: x + .1, y: y + .1, width: .8, height: .8, class: "flipped" });
      svg.append(spin, mark);
      found.push([spin, mark]);
    }
    $("grid-" + k).append(svg);
    return { svg, found };
  });
  function showGrid(k) {
    const now = data.sides[k].states[at[k]], before = at[k] ? data.sides[k].states[at[k] - 1] : now;
    let up = 0, flips = 0;
    cells[k].found.forEach(function ([spin, mark], i) {
      const flipped = now[i] !== before[i];
      spin.classList.toggle("up", now[i] === "1");
      mark.classList.toggle("on", flipped);
      up += now[i] === "1";
      flips += flipped;
    });
    cells[k].svg.setAttribute("aria-label", up + " of " + now.length + " spins are up");
    return flips;
  }

  // ------------------------------------------------------------------ charts
  const cursors = [];
  function ticksOf(low, high) {
    const raw = (high - low) / 4, unit = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 2.5, 5, 10].map((m) => m * unit).find((s) => s >= raw);
    const ticks = [];
    for (let t = Math.ceil(low / step - 1e-9) * step; t <= high + 1e-9 * step; t += step) ticks.push(t);
    return ticks;
  }
  function chart(name, label, exact) {
    const place = $("chart-" + name);
    if (!place) return;
    const width = 360, height = 200, left = 42, right = 8, upper = 8, lower = 34;
    const every = data.sides.flatMap((side) => side[name]).concat(exact === null ? [0] : [exact]);
    let low = Math.min(...every), high = Math.max(...every);
    const pad = Math.max((high - low) * 0.06, 0.01);
    low = name === "distance" ? 0 : low - pad;
    high = name === "distance" ? 1 : high + pad;
    const atX = (x) => left + x / rounds * (width - left - right);
    const atY = (y) => upper + (high - y) / (high - low) * (height - upper - lower);
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": label });
    for (const tick of ticksOf(low, high)) {
      svg.append(draw("line", { x1: left, x2: width - right, y1: atY(tick), y2: atY(tick), class: "rule" }));
      svg.append(draw("text", { x: left - 6, y: atY(tick) + 4, "text-anchor": "end" }, String(Number(tick.toFixed(3))).replace("-", "−")));
    }
    for (const x of ticksOf(0, rounds).filter(Number.isInteger)) svg.append(draw("text", { x: atX(x), y: height - lower + 16, "text-anchor": "middle" }, x));
    svg.append(draw("text", { x: (left + width - right) / 2, y: height - 3, "text-anchor": "middle" }, "round"));
    svg.append(draw("line", { x1: left, x2: width - right, y1: height - lower, y2: height - lower, class: "axis" }));
    if (exact !== null) svg.append(draw("path", { d: `M${left} ${atY(exact)}H${width - right}`, class: "exact" }));
    data.sides.forEach(function (side, k) {
      const points = side[name].map((y, x) => atX(x).toFixed(1) + " " + atY(y).toFixed(1));
      svg.append(draw("path", { d: "M" + points.join("L"), class: LOOKS[k] }));
    });
    const line = draw("line", { y1: upper, y2: height - lower, class: "cursor" });
    const dots = data.sides.map((_, k) => draw("circle", { r: 4.5, class: LOOKS[k] }));
    svg.append(line, ...dots);
    cursors.push(function () {
      line.setAttribute("x1", atX(at[0]));
      line.setAttribute("x2", atX(at[0]));
      line.style.display = at[0] === at[1] ? "" : "none";
      dots.forEach(function (dot, k) {
        dot.setAttribute("cx", atX(at[k]));
        dot.setAttribute("cy", atY(data.sides[k][name][at[k]]));
      });
    });
    place.append(svg);
  }
  chart("energy", "Energy per spin by round, of both samplers, with the exact mean", data.exact.energy);
  chart("magnetisation", "Magnetisation by round, of both samplers, with the exact mean", data.exact.magnetisation);
  chart("distance", "Distance to the model's law by round, of both samplers", null);

  // ------------------------------------------------------------------ rounds
  function goTo(position) {
    position = Math.min(last(), Math.max(0, Math.round(position) || 0));
    if (position === place) return;
    place = position;
    const value = positions[place].value;
    at = positions[place].steps;
    const flips = data.sides.map((_, k) => showGrid(k));
    data.sides.forEach(function (side, k) {
      const now = at[k], sum = side.energy.slice(1, now + 1).reduce((a, b) => a + b, 0);
      $("questions-" + k).textContent = side.questions[now];
      $("passes-" + k).textContent = side.passes[now];
      $("energy-" + k).textContent = shown(side.energy[now]);
      $("energy-mean-" + k).textContent = now ? shown(sum / now) : "–";
      $("magnetisation-" + k).textContent = shown(side.magnetisation[now]);
      if (side.distance) $("distance-" + k).textContent = shown(side.distance[now]);
    });
    cursors.forEach((move) => move());
    $("round").textContent = $("slider").value = value;
    $("first").disabled = $("back").disabled = place === 0;
    $("forward").disabled = $("last").disabled = place === last();
    $("happened").textContent = !place ? "Both start with the same random spins."
      : `Left round ${at[0]}, right round ${at[1]}. Left ${flips[0]} spins differ from the round before, right ${flips[1]}.`;
    if (!player.playing()) remember();
  }
  function remember() {
    try { history.replaceState(null, "", "#" + by + "=" + positions[place].value); } catch (_) { /* some browsers refuse it on disk */ }
  }
  function positionAt(value) { return positions.reduce((found, p, k) => (p.value <= value ? k : found), 0); }
  const from = (value) => goTo(positionAt(value));
  const player = makePlayer({ at: () => place, last, goTo, delay: () => 1000 / ROUNDS_A_SECOND, remember, from });
  function align(name, value) {
    by = name;
    positions = aligned(clocks[by]);
    place = -1;
    for (const choice of document.querySelectorAll("[name=by]")) choice.checked = choice.value === by;
    $("unit").textContent = by === "round" ? "Round" : "Pass";
    $("rounds").textContent = $("slider").max = positions[last()].value;
    from(value);
  }
  for (const choice of document.querySelectorAll("[name=by]")) choice.addEventListener("change", function () {
    player.pause();
    align(this.value, Math.min(...clocks[this.value].map((clock, k) => clock[at[k]])));
  });
  function fromAddress() {
    const asked = new URLSearchParams(location.hash.slice(1)), name = asked.has("pass") ? "pass" : "round";
    align(name, asked.get(name) === "last" ? Infinity : Number(asked.get(name)) || 0);
  }
  window.addEventListener("hashchange", fromAddress);
  fromAddress();
})();
