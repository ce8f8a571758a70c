// Costs of one or two algorithms, and their replays in frames.
function questions() {
  const names = [element("first").value, element("second").value].filter(name => name !== "nothing");
  return names.map(name => ({algorithm: name, task: element("task").value, noise: Number(element("noise").value), seed: Number(element("seed").value)}));
}
let busy = false, again = false;
async function ask() {
  if (busy) { again = true; return; }
  busy = true;
  try {
    do {
      again = false;
      const asked = questions(), found = [];
      for (const question of asked) found.push(await get(address("answers/replay", question)));
      element("costs").replaceChildren(...found.map(costLine));
      element("frames").replaceChildren(...asked.map((question, k) => make("iframe", {src: address("replay-page", question), title: "Replay of " + found[k].title, loading: "lazy"})));
      problem("");
    } while (again);
  } catch (error) { problem(error instanceof TypeError ? "The server has stopped: run `triptych serve` again." : error.message); }
  finally { busy = false; }
}
function costLine(found) {
  const row = make("tr"), wrote = make("td");
  wrote.append(make("code", {}, found.text || "nothing"), " ", make("span", {class: found.right ? "holds" : "fails"}, found.right ? "right" : "not right"));
  row.append(make("th", {scope: "row"}, found.title), wrote);
  for (const name of ["model", "verifier", "written", "erased"]) row.append(make("td", {}, found[name]));
  return row;
}
for (const id of ["noise", "seed"]) {
  element(id).addEventListener("input", function () { element(id + "-shown").textContent = element(id).value; });
  element(id).addEventListener("change", ask);
  element(id + "-shown").textContent = element(id).value;
}
for (const id of ["task", "first", "second"]) element(id).addEventListener("change", ask);
ask();
