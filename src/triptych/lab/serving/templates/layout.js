// What all pages share: questions to the engine, dials in the address, full screen, and line charts.
"use strict";
document.documentElement.classList.add("scripted");
function element(id) { return document.getElementById(id); }
function stopped(error) {
  return error instanceof TypeError ? "The server has stopped: run `triptych serve` again." : error.message;
}
// The whole screen, with larger letters, by a button or f.
function fullScreen() {
  if (document.fullscreenElement) document.exitFullscreen();
  else document.documentElement.requestFullscreen().catch(() => problem("This browser does not give its whole screen to a page."));
}
element("full").addEventListener("click", fullScreen);
document.addEventListener("keydown", function (event) {
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && event.target.type !== "range";
  if (event.key === "f" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) fullScreen();
});

function problem(sentence) {
  element("problem").textContent = sentence;
  element("problem").hidden = !sentence;
}
async function get(address) {
  const reply = await fetch(address);
  const content = await reply.json();
  if (!reply.ok) throw new Error(content.error);
  return content;
}
function address(path, question) {
  return path + "?question=" + encodeURIComponent(JSON.stringify(question));
}
// Asks when nothing is under way, and the latest question once more when something was.
function asker(path, read, show) {
  let busy = false, again = false, latest = null;
  window.addEventListener("resize", () => { if (latest) show(...latest); });  // charts have the width of their place
  return async function ask() {
    if (busy) { again = true; return; }
    busy = true;
    try {
      do {
        again = false;
        const question = read();
        latest = [await get(address(path, question)), question];
        show(...latest);
        problem("");
      } while (again);
    } catch (error) {
      problem(stopped(error));
    } finally { busy = false; }
  };
}
// Dials and the address: #coupling=0.8&block=2 sets them, and each change is written there.
// `more` has what else a page keeps: a name with a function that says it and one that takes it.
// `event` says when a slider counts as changed. Returns what to call after a change of `more`.
function dials(ids, ask, more, event) {
  const inputs = ids.map(element), others = Object.entries(more || {});
  function paint() {
    for (const input of inputs) { const shown = element(input.id + "-shown"); if (shown) shown.textContent = input.value; }
  }
  function read() {
    const asked = new URLSearchParams(location.hash.slice(1));
    for (const input of inputs) if (asked.has(input.id)) {
      const before = input.value;
      input.value = asked.get(input.id);
      if (input.tagName === "SELECT" && input.selectedIndex < 0) input.value = before;
    }
    for (const [name, [, take]] of others) if (asked.has(name)) take(asked.get(name));
    paint();
  }
  function changed() {
    const pairs = inputs.map(input => [input.id, input.value]).concat(others.map(([name, [say]]) => [name, say()]));
    const text = pairs.map(([name, value]) => name + "=" + encodeURIComponent(value)).join("&");
    try { history.replaceState(null, "", "#" + text); } catch (_) { /* not allowed */ }
    return ask();
  }
  for (const input of inputs) {
    input.addEventListener("input", paint);
    input.addEventListener(input.tagName === "SELECT" ? "change" : event || "input", changed);
  }
  window.addEventListener("hashchange", function () { read(); ask(); });
  read();
  ask();
  return changed;
}
function make(name, attributes, text) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}
function draw(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}
// Short numbers: 0.25, 1.2e-5, 380.
function short(value) {
  if (value === 0) return "0";
  return Math.abs(value) < 0.001 ? value.toExponential(1) : String(Number(value.toPrecision(3)));
}
// series: {name, x, y, colour, dash, dots, numbers}; y runs from 0 to `top`, or over decades if `log`.
// One unit of the drawing is one pixel, so letters are as large as those of the page at any width.
function letters() { return parseFloat(getComputedStyle(document.documentElement).fontSize) * .85; }
function chart(place, series, options) {
  const size = letters(), width = Math.max(280, place.clientWidth || 520), height = Math.max(230, Math.min(.5 * width, 26 * size));
  const left = 4.4 * size, right = size, upper = 1.6 * size, lower = 3.4 * size;
  const xs = series.flatMap(line => line.x);
  const least = Math.min(...xs), most = Math.max(...xs, least + 1);
  const low = options.log ? Math.floor(Math.log10(Math.min(...series.flatMap(line => line.y)))) : 0;
  const scaled = options.log ? y => (Math.log10(y) - low) / Math.max(1, -low) : y => y / options.top;
  const atX = x => left + (x - least) / (most - least) * (width - left - right);
  const atY = y => height - lower - scaled(y) * (height - upper - lower);
  const svg = draw("svg", {viewBox: `0 0 ${width} ${height}`, class: "chart", style: "font-size: " + size + "px", role: "img", "aria-label": options.label});
  const ticks = options.log ? Array.from({length: Math.max(2, 1 - low)}, (_, k) => 10 ** (-k)) : [0, .25, .5, .75, 1].map(t => t * options.top);
  const every = Math.ceil(ticks.length / 6);
  for (const tick of ticks.filter((_, k) => k % every === 0)) {
    svg.append(draw("line", {x1: left, x2: width - right, y1: atY(tick), y2: atY(tick), class: "grid"}));
    svg.append(draw("text", {x: left - 6, y: atY(tick) + .35 * size, "text-anchor": "end"}, short(tick)));
  }
  const fit = Math.min(10, width / (4 * size)), stride = [1, 2, 5, 10, 20, 50].find(step => (most - least) / step <= fit) || 100;
  for (let x = least; x <= most; x += stride) svg.append(draw("text", {x: atX(x), y: height - lower + 1.35 * size, "text-anchor": "middle"}, x));
  svg.append(draw("text", {x: (left + width - right) / 2, y: height - .5 * size, "text-anchor": "middle"}, options.x));
  svg.append(draw("line", {x1: left, x2: width - right, y1: height - lower, y2: height - lower, class: "axis"}));
  for (const line of series) {
    const style = {stroke: `var(--${line.colour})`, "stroke-width": line.wide ? 3.2 : 2, "stroke-dasharray": line.dash || "none", fill: "none"};
    svg.append(draw("polyline", {...style, points: line.x.map((x, k) => atX(x) + "," + atY(line.y[k])).join(" ")}));
    if (line.dots) line.x.forEach((x, k) => svg.append(draw("circle", {cx: atX(x), cy: atY(line.y[k]), r: x === options.chosen ? 7 : 4, fill: `var(--${line.colour})`})));
    if (line.numbers) line.x.forEach((x, k) => svg.append(draw("text", {x: atX(x), y: atY(line.y[k]) - .7 * size, "text-anchor": k === 0 ? "start" : k === line.x.length - 1 ? "end" : "middle", class: "number"}, short(line.y[k]))));
  }
  const legend = make("ul", {class: "legend"});
  if (series.length > 1) for (const line of series) {
    const item = make("li"), key = draw("svg", {viewBox: "0 0 28 10", "aria-hidden": "true"});
    key.append(draw("line", {x1: 0, x2: 28, y1: 5, y2: 5, stroke: `var(--${line.colour})`, "stroke-width": 3, "stroke-dasharray": line.dash || "none"}));
    item.append(key, line.name);
    legend.append(item);
  }
  place.replaceChildren(svg, legend);
}
