// Search and unfolding. Without this script the page is a plain, complete document.
(function () {
  "use strict";
  const root = document.documentElement;
  root.classList.add("scripted");

  const form = document.getElementById("filters");
  if (!form) return;

  // Search: verdicts add up, the rest narrows down. Groups with a hit unfold while a search is on.
  const chips = Array.from(form.querySelectorAll(".chip"));
  const claims = Array.from(document.querySelectorAll("details.claim"));
  const studies = Array.from(document.querySelectorAll("details.study"));
  const groups = Array.from(document.querySelectorAll("details.group"));
  const chapters = Array.from(document.querySelectorAll(".chapter"));
  const clearing = document.getElementById("clear");
  const unfold = document.getElementById("unfold");
  const text = form.elements.text;
  let unfolded = false;  // by the search before
  function apply() {
    const wanted = chips.filter((c) => c.getAttribute("aria-pressed") === "true").map((c) => c.dataset.verdict);
    const source = form.elements.source.value;
    const kind = form.elements.kind.value;
    const terms = text.value.toLowerCase().split(/\s+/).filter(Boolean);
    const searching = Boolean(wanted.length || source || kind || terms.length);
    const says = (item) => terms.every((term) => item.dataset.search.includes(term));
    let shown = 0;
    for (const claim of claims) {
      const d = claim.dataset;
      const fits = (!wanted.length || wanted.includes(d.verdict))
        && (!source || d.work === source || d.part === source)
        && (!kind || d.kind === kind) && says(claim);
      claim.hidden = !fits;
      if (fits) shown += 1;
    }
    for (const study of studies) study.hidden = !says(study);
    for (const group of groups) {
      group.hidden = !group.querySelector("details.claim:not([hidden])");
      if (searching || unfolded) group.open = searching;  // what a reader unfolds stays open
    }
    for (const chapter of chapters) chapter.hidden = !chapter.querySelector("details.study:not([hidden])");
    unfolded = searching;
    document.getElementById("shown").textContent = shown + " of " + claims.length + " results";
    document.getElementById("none").hidden = shown > 0;
    clearing.hidden = !searching;
    unfold.textContent = searching ? "Fold all" : "Unfold all";
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
  clearing.addEventListener("click", function (event) { event.preventDefault(); clear(); text.focus(); });
  unfold.addEventListener("click", function () {
    const open = unfold.textContent === "Unfold all";
    for (const group of groups) group.open = open;
    unfold.textContent = open ? "Fold all" : "Unfold all";
  });

  // Keys: / goes to the search, Escape clears it.
  document.addEventListener("keydown", function (event) {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      text.focus();
      text.select();
    } else if (event.key === "Escape" && event.target === text) {
      clear();
    }
  });

  // A link to something folded or hidden shows it; #search=words is a search.
  function reveal() {
    const name = decodeURIComponent(location.hash.slice(1));
    if (name.startsWith("search=")) {
      clear();
      const words = name.slice(7);
      const chip = chips.find((c) => c.dataset.verdict === words.replace(/ /g, "-"));
      if (chip) chip.setAttribute("aria-pressed", "true");
      else text.value = words;
      apply();
      document.getElementById("ledger").scrollIntoView();
      return;
    }
    const target = document.getElementById(name);
    if (!target) return;
    if (target.closest("[hidden]")) clear();
    for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
    target.scrollIntoView();
  }
  window.addEventListener("hashchange", reveal);
  document.addEventListener("click", function (event) {
    const link = event.target.closest("a[href^='#']");
    if (link && link.getAttribute("href") === location.hash) reveal();
  });
  apply();
  if (location.hash) reveal();
})();
