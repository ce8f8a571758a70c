// Filters of the ledger and the theme. Without this script the page is a plain, complete document.
(function () {
  "use strict";
  const root = document.documentElement;
  root.classList.add("scripted");

  // Theme: auto follows the system; a choice is remembered where the browser allows it.
  const themes = ["auto", "light", "dark"];
  const button = document.getElementById("theme");
  let theme = "auto";
  try { theme = localStorage.getItem("triptych-theme") || "auto"; } catch (_) { /* file: storage */ }
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
  if (!themes.includes(theme)) theme = "auto";
  paint();

  // On a phone the explanations wait until they are asked for.
  if (matchMedia("(max-width: 700px)").matches) document.querySelector("#reading details").open = false;

  // Filters: verdicts add up, the rest narrows down.
  const form = document.getElementById("filters");
  const chips = Array.from(form.querySelectorAll(".chip"));
  const rows = Array.from(document.querySelectorAll("tr[data-verdict]"));
  const groups = Array.from(document.querySelectorAll("table.ledger tbody"));
  const words = new Map(rows.map((row) => [row, (row.id + " " + row.textContent).toLowerCase()]));
  function apply() {
    const wanted = chips.filter((c) => c.getAttribute("aria-pressed") === "true").map((c) => c.dataset.verdict);
    const source = form.elements.source.value;
    const kind = form.elements.kind.value;
    const terms = form.elements.text.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const d = row.dataset;
      const fits = (!wanted.length || wanted.includes(d.verdict))
        && (!source || d.work === source || d.part === source)
        && (!kind || d.kind === kind)
        && terms.every((term) => words.get(row).includes(term));
      row.hidden = !fits;
      if (fits) shown += 1;
    }
    for (const group of groups) group.hidden = !group.querySelector("tr[data-verdict]:not([hidden])");
    document.getElementById("shown").textContent = shown + " of " + rows.length;
    document.getElementById("none").hidden = shown > 0;
    document.getElementById("clear").hidden = !(wanted.length || source || kind || terms.length);
  }
  function clear() {
    form.reset();
    for (const chip of chips) chip.setAttribute("aria-pressed", "false");
    apply();
  }
  for (const chip of chips) {
    chip.addEventListener("click", function () {
      chip.setAttribute("aria-pressed", String(chip.getAttribute("aria-pressed") !== "true"));
      apply();
    });
  }
  form.addEventListener("input", apply);
  form.addEventListener("submit", function (event) { event.preventDefault(); });
  document.getElementById("clear").addEventListener("click", function (event) { event.preventDefault(); clear(); });

  // A link to a row that a filter hides clears the filter first.
  function reveal() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target && target.hidden) { clear(); target.scrollIntoView(); }
  }
  window.addEventListener("hashchange", reveal);
  apply();
})();
