// One or two algorithms in a frame, under one player; #step=12 or #cost=40 goes to the frame.
let shown = "";
function ask() {
  const names = [element("first").value, element("second").value].filter(name => name !== "nothing");
  const question = {algorithms: names, task: element("task").value, noise: Number(element("noise").value), seed: Number(element("seed").value)};
  const asked = new URLSearchParams(location.hash.slice(1));
  const place = ["step", "cost"].filter(name => asked.has(name)).map(name => name + "=" + asked.get(name)).join("&");
  const source = address("replay-page", question) + (place ? "#" + place : "");
  if (source === shown) return;
  shown = source;
  element("frame").replaceChildren(make("iframe", {src: source, title: "Replay of " + names.join(" and ")}));
}
dials(["task", "first", "second", "noise", "seed"], ask, {}, "change");
