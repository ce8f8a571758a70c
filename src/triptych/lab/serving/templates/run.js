// The run, asked for every two seconds.
const before = new Map();
function studyLine(study) {
  const line = make("li"), name = study.study + ", " + study.scale + " scale";
  line.append(make("span", {class: "wrap"}, name));
  line.append(make("progress", {max: Math.max(1, study.planned), value: study.done + study.failed, "aria-label": name}));
  const count = make("span", {class: "count"}, study.done + " of " + study.planned);
  if (study.failed) count.append(make("span", {class: "bad"}, ", " + study.failed + " failed"));
  line.append(count);
  if (study.running.length) line.append(make("span", {class: "now"}, "Now: " + study.running.slice(0, 4).join("; ")));
  return line;
}
function verdictLine(verdict) {
  const key = verdict.id + " " + verdict.scale, known = before.get(key);
  const line = make("li", known !== undefined && known !== verdict.status ? {class: "new"} : {});
  before.set(key, verdict.status);
  line.append(make("b", {class: verdict.status.replaceAll(" ", "-")}, verdict.status));
  const text = make("span", {}, verdict.title);
  text.append(make("small", {}, verdict.id + " · " + verdict.study + ", " + verdict.scale + (verdict.reason ? " · " + verdict.reason : "")));
  line.append(text);
  return line;
}
function show(state) {
  const done = state.studies.reduce((sum, study) => sum + study.done + study.failed, 0);
  const planned = state.studies.reduce((sum, study) => sum + study.planned, 0);
  let text = "Nothing was run into this folder yet. This page follows a run as soon as it starts.";
  if (planned) text = (state.running ? "A run is going on: " : "No run is going on: ") + done + " of " + planned + " units have ended.";
  element("left").textContent = state.left === null ? "" : "About " + state.left + " left of the whole run.";
  if (element("now").textContent !== text) element("now").textContent = text;
  element("studies").replaceChildren(...state.studies.map(studyLine));
  element("verdicts").replaceChildren(...state.verdicts.map(verdictLine));
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
  catch (error) { problem(error instanceof TypeError ? "The server has stopped: run `triptych serve` again." : error.message); }
  setTimeout(follow, 2000);
}
follow();
