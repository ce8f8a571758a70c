// Play, pause, single steps and the keyboard of a replay.
//   at()          the step that is shown
//   last()        the last one
//   goTo(k)       show step k; it asks `playing()` before it remembers the step in the address
//   delay()       milliseconds between two steps
//   remember()    put the step into the address
//   from(value)   show what belongs to a value of the slider; `goTo` unless it says otherwise
function makePlayer({ at, last, goTo, delay, remember, from = goTo }) {
  const $ = (id) => document.getElementById(id);
  let timer = null;
  function tick() {
    if (at() >= last()) { pause(); return; }
    goTo(at() + 1);
    timer = setTimeout(tick, delay());
  }
  function shows(playing) {
    for (const said of document.querySelectorAll("[id^=happened]")) said.setAttribute("aria-live", playing ? "off" : "polite");
    $("play-word").textContent = playing ? "Pause" : "Play";
    $("play-icon").setAttribute("d", playing ? "M4 2h3v12H4zM9.5 2h3v12h-3z" : "M4 2l9 6-9 6z");
  }
  function play() {
    if (at() >= last()) goTo(0);
    shows(true);
    timer = setTimeout(tick, Math.min(300, delay()));
  }
  function pause() {
    if (timer === null) return;
    clearTimeout(timer);
    timer = null;
    shows(false);
    remember();
  }
  function toggle() { if (timer === null) play(); else pause(); }
  const moves = { first: () => goTo(0), back: () => goTo(at() - 1), forward: () => goTo(at() + 1), last: () => goTo(last()) };
  for (const name in moves) $(name).addEventListener("click", function () { pause(); moves[name](); });
  $("play").addEventListener("click", toggle);
  $("slider").addEventListener("input", function () { pause(); from(Number(this.value)); });
  document.addEventListener("keydown", function (event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const on = event.target.closest ? event.target : document.documentElement;
    if (on.closest("select")) return;
    if (event.key === " " ? on.closest("button") : on.closest("input")) return;  // the browser's own
    const name = { ArrowLeft: "back", ArrowRight: "forward", Home: "first", End: "last" }[event.key];
    if (event.key === " ") toggle();
    else if (name) { pause(); moves[name](); }
    else return;
    event.preventDefault();
  });
  return { pause, playing: () => timer !== null };
}


// Several replays under one clock. `clocks` has for each of them the time of every step, which never
// falls; a position is a time at which something happens, with the last step of each that it has seen.
// Worked: [0, 1, 2] and [0, 2, 5] are the times 0, 1, 2, 5 with the steps 0 0, 1 0, 2 1, 2 2.
function aligned(clocks) {
  const times = [...new Set(clocks.flat())].sort((a, b) => a - b), steps = clocks.map(() => 0);
  return times.map(function (value) {
    clocks.forEach(function (clock, i) { while (steps[i] + 1 < clock.length && clock[steps[i] + 1] <= value) steps[i]++; });
    return { value, steps: [...steps] };
  });
}
