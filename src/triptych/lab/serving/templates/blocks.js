// Gap, law and one chain of block Gibbs sampling.
let seed = 0;
const count = name => Number(element(name).value);
const ask = asker("answers/blocks", function () {
  element("block").max = count("spins");
  element("block-shown").textContent = element("block").value;
  return {graph: element("graph").value, spins: count("spins"), coupling: count("coupling"), block: count("block"), seed: seed};
}, function (found, question) {
  const gap = found.gaps[question.block - 1], blocks = question.block === 1 ? "single spins" : "blocks of " + question.block;
  element("says").textContent = "With " + blocks + " the gap is " + short(gap) + ". From the worst start the law is within ¼ of the target after " + found.mixing + (found.mixing === 1 ? " step." : " steps.");
  chart(element("gaps"), [{x: found.gaps.map((_, k) => k + 1), y: found.gaps, colour: "ours", dots: true, numbers: true}], {x: "block size", log: true, chosen: question.block, label: "Gap by block size, on a logarithmic scale"});
  chart(element("distance"), [{x: found.distance.map((_, k) => k), y: found.distance, colour: "truth"}], {x: "steps", top: 1, label: "Total variation to the target after each step"});
  paintPath(found.path);
});
function paintPath(path) {
  const size = letters(), left = 2.6 * size, steps = path.length - 1, spins = path[0].length;
  const width = Math.max(280, element("path").clientWidth || 600), cell = (width - left) / path.length, tall = Math.max(14, Math.min(cell * 1.6, 2.2 * size));
  const svg = draw("svg", {viewBox: `0 0 ${width} ${spins * tall + 2.6 * size}`, class: "spins", style: "font-size: " + size + "px", role: "img", "aria-label": "Spins of one chain over " + steps + " steps"});
  path.forEach((state, t) => state.forEach((up, k) => svg.append(draw("rect", {x: left + t * cell + .5, y: k * tall + .5, width: cell - 1, height: tall - 1, fill: up ? "var(--ours)" : "var(--raised)", stroke: "var(--line)", "stroke-width": .5}))));
  for (let k = 0; k < spins; k++) svg.append(draw("text", {x: left - .5 * size, y: (k + .5) * tall + .35 * size, "text-anchor": "end"}, k + 1));
  const every = Math.ceil(steps / Math.min(12, width / (5 * size)) / 5) * 5;
  for (let t = 0; t <= steps; t += every) svg.append(draw("text", {x: left + (t + .5) * cell, y: spins * tall + 1.3 * size, "text-anchor": "middle"}, t));
  element("path").replaceChildren(svg);
}
const changed = dials(["graph", "spins", "coupling", "block"], ask, {seed: [() => seed, value => { seed = Math.max(0, Math.floor(Number(value)) || 0); }]});
element("again").addEventListener("click", function () { seed += 1; changed(); });
