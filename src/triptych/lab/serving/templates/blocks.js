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
  chart(element("gaps"), [{x: found.gaps.map((_, k) => k + 1), y: found.gaps, colour: "ours", dots: true}], {x: "block size", log: true, chosen: question.block, label: "Gap by block size, on a logarithmic scale"});
  chart(element("distance"), [{x: found.distance.map((_, k) => k), y: found.distance, colour: "truth"}], {x: "steps", top: 1, label: "Total variation to the target after each step"});
  paintPath(found.path);
});
function paintPath(path) {
  const size = 10, spins = path[0].length;
  const svg = draw("svg", {viewBox: `0 0 ${path.length * size} ${spins * size}`, class: "spins", role: "img", "aria-label": "Spins of one chain over " + (path.length - 1) + " steps"});
  path.forEach((state, t) => state.forEach((up, k) => svg.append(draw("rect", {x: t * size + .5, y: k * size + .5, width: size - 1, height: size - 1, fill: up ? "var(--ours)" : "var(--raised)", stroke: "var(--line)", "stroke-width": .5}))));
  element("path").replaceChildren(svg);
}
sliders(["spins", "coupling", "block"], ask);
element("graph").addEventListener("change", ask);
element("again").addEventListener("click", function () { seed += 1; ask(); });
ask();
