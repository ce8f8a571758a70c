// What all pages share: the theme, questions to the engine, and line charts.
"use strict";
document.documentElement.classList.add("scripted");
const themes = ["auto", "light", "dark"];
let theme = "auto";
try { theme = localStorage.getItem("triptych-theme") || "auto"; } catch (_) { /* not allowed */ }
function paintTheme() {
  if (!themes.includes(theme)) theme = "auto";
  if (theme === "auto") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.setAttribute("data-theme", theme);
  element("theme").textContent = "Theme: " + theme;
  try { localStorage.setItem("triptych-theme", theme); } catch (_) { /* not remembered */ }
}
function element(id) { return document.getElementById(id); }
element("theme").addEventListener("click", function () {
  theme = themes[(themes.indexOf(theme) + 1) % themes.length];
  paintTheme();
});
paintTheme();

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
  let busy = false, again = false;
  return async function ask() {
    if (busy) { again = true; return; }
    busy = true;
    try {
      do {
        again = false;
        const question = read();
        show(await get(address(path, question)), question);
        problem("");
      } while (again);
    } catch (error) {
      problem(error instanceof TypeError ? "The server has stopped: run `triptych serve` again." : error.message);
    } finally { busy = false; }
  };
}
function sliders(ids, changed) {
  for (const id of ids) {
    const input = element(id), shown = element(id + "-shown");
    const paint = function () { if (shown) shown.textContent = input.value; };
    input.addEventListener("input", function () { paint(); changed(); });
    paint();
  }
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
// series: {name, x, y, colour, dash, dots}; y runs from 0 to `top`, or over decades if `log`.
function chart(place, series, options) {
  const width = 520, height = 260, left = 52, right = 12, upper = 12, lower = 40;
  const xs = series.flatMap(line => line.x);
  const least = Math.min(...xs), most = Math.max(...xs, least + 1);
  const low = options.log ? Math.floor(Math.log10(Math.min(...series.flatMap(line => line.y)))) : 0;
  const scaled = options.log ? y => (Math.log10(y) - low) / Math.max(1, -low) : y => y / options.top;
  const atX = x => left + (x - least) / (most - least) * (width - left - right);
  const atY = y => height - lower - scaled(y) * (height - upper - lower);
  const svg = draw("svg", {viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": options.label});
  const ticks = options.log ? Array.from({length: Math.max(2, 1 - low)}, (_, k) => 10 ** (-k)) : [0, .25, .5, .75, 1].map(t => t * options.top);
  const every = Math.ceil(ticks.length / 6);
  for (const tick of ticks.filter((_, k) => k % every === 0)) {
    svg.append(draw("line", {x1: left, x2: width - right, y1: atY(tick), y2: atY(tick), class: "grid"}));
    svg.append(draw("text", {x: left - 6, y: atY(tick) + 4, "text-anchor": "end"}, short(tick)));
  }
  const stride = Math.max(1, Math.ceil((most - least) / 10));
  for (let x = least; x <= most; x += stride) svg.append(draw("text", {x: atX(x), y: height - lower + 16, "text-anchor": "middle"}, x));
  svg.append(draw("text", {x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle"}, options.x));
  svg.append(draw("line", {x1: left, x2: width - right, y1: height - lower, y2: height - lower, class: "axis"}));
  for (const line of series) {
    const style = {stroke: `var(--${line.colour})`, "stroke-width": line.wide ? 3.2 : 2, "stroke-dasharray": line.dash || "none", fill: "none"};
    svg.append(draw("polyline", {...style, points: line.x.map((x, k) => atX(x) + "," + atY(line.y[k])).join(" ")}));
    if (line.dots) line.x.forEach((x, k) => svg.append(draw("circle", {cx: atX(x), cy: atY(line.y[k]), r: x === options.chosen ? 7 : 4, fill: `var(--${line.colour})`})));
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
