// Play, pause, single steps and the keyboard of a replay.
//   at()          the step that is shown
//   last()        the last one
//   goTo(k)       show step k; it asks `playing()` before it remembers the step in the address
//   delay()       milliseconds between two steps
//   remember()    put the step into the address
function makePlayer({ at, last, goTo, delay, remember }) {
  const $ = (id) => document.getElementById(id);
  let timer = null;
  function tick() {
    if (at() >= last()) { pause(); return; }
    goTo(at() + 1);
    timer = setTimeout(tick, delay());
  }
  function shows(playing) {
    $("happened").setAttribute("aria-live", playing ? "off" : "polite");
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
  $("slider").addEventListener("input", function () { pause(); goTo(Number(this.value)); });
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

