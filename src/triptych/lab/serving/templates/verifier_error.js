// Distances of the samplers' laws, by the length of the string.
let seed = 0;
const looks = [["control", "none"], ["control-3", "6 4"], ["ours", "none"], ["published", "8 3"], ["ours-3", "2 3"], ["truth", "10 3 2 3"]];
const ask = asker("answers/verifier-error", function () {
  return {target: element("target").value, length: Number(element("length").value), error: Number(element("error").value), seed: seed};
}, function (found) {
  const names = Object.keys(found.distances), last = name => found.distances[name].at(-1);
  const largest = Math.max(0.05, ...names.flatMap(name => found.distances[name]));
  const top = [0.1, 0.2, 0.4, 0.6, 0.8, 1].find(end => end >= largest) || 1;
  const series = names.map((name, k) => ({name: name, x: found.lengths, y: found.distances[name], colour: looks[k][0], dash: looks[k][1], dots: true}));
  chart(element("distances"), series, {x: "string length", top: top, label: "Distance to the target by string length, for each sampler"});
  const ranked = names.slice().sort((a, b) => last(a) - last(b));
  element("ranking").replaceChildren(...ranked.map(function (name) {
    const row = make("tr");
    row.append(make("th", {scope: "row"}, name), make("td", {}, last(name) < 1e-9 ? "0" : short(last(name))));
    return row;
  }));
  element("says").textContent = found.winner === null ? "Several samplers are equally near to the target." : "The winner is " + found.winner + ": its law is " + short(last(found.winner)) + " away from the target. Tokenwise rejection is " + short(last("tokenwise rejection")) + " away.";
});
const changed = dials(["target", "length", "error"], ask, {seed: [() => seed, value => { seed = Math.max(0, Math.floor(Number(value)) || 0); }]});
element("again").addEventListener("click", function () { seed += 1; changed(); });
