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
  const over = study => study.done + study.failed >= study.planned && !study.running.length;
  const ended = state.studies.filter(over);
  element("studies").replaceChildren(...state.studies.filter(study => !over(study)).map(studyLine));
  element("ended").replaceChildren(...ended.map(studyLine));
  element("ended-part").hidden = !ended.length;
  element("ended-count").textContent = ended.length + (ended.length === 1 ? " study is done" : " studies are done");
  element("verdicts").replaceChildren(...state.verdicts.map(verdictLine));
}
async function follow() {
  try { show(await get("live")); problem(""); }
  catch (error) { problem(stopped(error)); }
  setTimeout(follow, 2000);
}
follow();
