// One slide at a time: keys, touch, notes, full screen. Without this script all slides follow each other.
(function () {
  "use strict";
  const root = document.documentElement;
  root.classList.add("scripted");
  const $ = (id) => document.getElementById(id);
  const screens = Array.from(document.querySelectorAll(".screen"));
  let at = -1;
  function goTo(k) {
    k = Math.min(screens.length - 1, Math.max(0, k));
    if (k === at) return;
    at = k;
    screens.forEach((screen, i) => { screen.hidden = i !== at; });
    window.scrollTo(0, 0);
    $("where").textContent = at + 1 + " of " + screens.length;
    $("previous").disabled = at === 0;
    $("next").disabled = at === screens.length - 1;
    try { history.replaceState(null, "", at ? "#" + screens[at].id : location.pathname + location.search); } catch (_) { /* some browsers refuse it on disk */ }
  }
  // #li.tab-3.3 is the slide of a claim, #4 the fourth slide.
  function fromAddress() {
    const name = decodeURIComponent(location.hash.slice(1));
    const named = screens.findIndex((screen) => screen.id === name);
    goTo(named >= 0 ? named : (Number(name) || 1) - 1);
  }
  function notes() {
    const on = root.classList.toggle("noted");
    $("notes").setAttribute("aria-pressed", String(on));
  }
  function full() {
    if (document.fullscreenElement) document.exitFullscreen();
    else if (root.requestFullscreen) root.requestFullscreen().catch(function () { /* not allowed here */ });
  }
  $("previous").addEventListener("click", () => goTo(at - 1));
  $("next").addEventListener("click", () => goTo(at + 1));
  $("notes").addEventListener("click", notes);
  $("full").addEventListener("click", full);
  document.addEventListener("keydown", function (event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === " " && event.target.closest && event.target.closest("button")) return;  // the browser's own
    if (event.key === "ArrowRight" || event.key === "PageDown" || (event.key === " " && !event.shiftKey)) goTo(at + 1);
    else if (event.key === "ArrowLeft" || event.key === "PageUp" || event.key === " ") goTo(at - 1);
    else if (event.key === "Home") goTo(0);
    else if (event.key === "End") goTo(screens.length - 1);
    else if (event.key === "n") notes();
    else if (event.key === "f") full();
    else return;
    event.preventDefault();
  });
  // A finger that goes sideways: to the left is the next slide.
  let began = null;
  document.addEventListener("touchstart", function (event) {
    began = event.touches.length === 1 ? [event.touches[0].clientX, event.touches[0].clientY] : null;
  }, { passive: true });
  document.addEventListener("touchend", function (event) {
    if (!began) return;
    const over = event.changedTouches[0].clientX - began[0], down = event.changedTouches[0].clientY - began[1];
    began = null;
    if (Math.abs(over) > 50 && Math.abs(over) > 1.5 * Math.abs(down)) goTo(at + (over < 0 ? 1 : -1));
  });
  window.addEventListener("hashchange", fromAddress);
  fromAddress();
})();
