// What is where; of a run folder how far it is, asked for every five seconds.
const folder = document.getElementById("tally");
function show(state) {
  const done = state.studies.reduce((sum, study) => sum + study.done + study.failed, 0);
  const planned = state.studies.reduce((sum, study) => sum + study.planned, 0);
  let text = "Nothing was run into this folder yet. The pages of the run follow one as soon as it starts.";
  if (planned) text = (state.running ? "A run is going on: " : "No run is going on: ") + done + " of " + planned + " units have ended" + (state.left === null ? "." : ", and about " + state.left + " are left.");
  if (element("now").textContent !== text) element("now").textContent = text;
  const counts = new Map();
  for (const verdict of state.verdicts) counts.set(verdict.status, (counts.get(verdict.status) || 0) + 1);
  folder.replaceChildren(...[...counts].map(function ([status, count]) {
    const item = make("li", {class: status.replaceAll(" ", "-")});
    item.append(make("b", {}, count), make("span", {}, status));
    return item;
  }));
  const files = state.files.filter(name => name !== "report.html");
  element("files-part").hidden = !files.length;
  element("files").replaceChildren(...files.map(function (name) {
    const item = make("li");
    item.append(make("a", {href: "files/" + encodeURIComponent(name)}, name));
    return item;
  }));
}
async function follow() {
  try { show(await get("live")); problem(""); }
  catch (error) { problem(stopped(error)); }
  setTimeout(follow, 5000);
}
if (folder) follow();
