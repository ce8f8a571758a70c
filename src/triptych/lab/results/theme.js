// The theme button of every page: auto follows the system; a choice is remembered where the browser allows it.
(function () {
  "use strict";
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const themes = ["auto", "light", "dark"];
  let theme = "auto";
  try { theme = localStorage.getItem("triptych-theme") || "auto"; } catch (_) { /* file: storage */ }
  if (!themes.includes(theme)) theme = "auto";
  function paint() {
    if (theme === "auto") root.removeAttribute("data-theme");
    else root.setAttribute("data-theme", theme);
    button.textContent = "Theme: " + theme;
    try { localStorage.setItem("triptych-theme", theme); } catch (_) { /* not remembered */ }
  }
  button.addEventListener("click", function () {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    paint();
  });
  // another page of this browser, or the page around a frame, has changed it
  window.addEventListener("storage", function (event) {
    if (event.key === "triptych-theme" && themes.includes(event.newValue)) { theme = event.newValue; paint(); }
  });
  paint();
})();
