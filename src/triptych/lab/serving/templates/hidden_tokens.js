// A row of tokens; each can be hidden, shown and changed.
const LONGEST = 16;
const tokens = [0, 0, 1, 0, 2, 2, 1, 2], hidden = tokens.map((_, k) => k === 3 || k === 4);
function bars(probs, kind, label) {
  const box = make("div", {class: "bars " + kind, role: "img", "aria-label": label + ": " + probs.map((p, k) => k + " with " + p.toFixed(2)).join(", ")});
  probs.forEach(function (p, k) {
    const bar = make("i", {style: "--p: " + p, title: k + ": " + p.toFixed(4)});
    bar.append(make("u", {}, percent(p)), make("b", {}, k));
    box.append(bar);
  });
  return box;
}
function percent(p) {  // two figures fit over a bar; what is not 0 or 100 does not look like it
  return p > 0 && p < 0.005 ? "<1" : p < 1 && p >= 0.995 ? ">99" : String(Math.round(100 * p));
}
function position(k, found) {
  const box = make("div", {class: "position"});
  const button = make("button", {type: "button", "aria-pressed": String(hidden[k]), "aria-label": "Token " + tokens[k] + " at position " + (k + 1) + (hidden[k] ? ", hidden" : ", shown"), class: hidden[k] ? "covered" : ""}, hidden[k] ? "?" : tokens[k]);
  button.addEventListener("click", function () { hidden[k] = !hidden[k]; changed().then(() => focusOn(k, 0)); });
  const change = make("button", {type: "button", class: "change", "aria-label": "Change token " + (k + 1)}, "change");
  change.addEventListener("click", function () { tokens[k] = (tokens[k] + 1) % Number(element("states").value); hidden[k] = false; changed().then(() => focusOn(k, 1)); });
  box.append(button, change, bars(found.states[k], "", "state"), make("span", {class: "room"}));
  if (hidden[k]) box.append(bars(found.tokens[k], "guess", "token"), make("span", {class: "room"}));
  return box;
}
function focusOn(k, which) { element("positions").children[k].querySelectorAll("button")[which].focus(); }
function sentence(found) {
  const at = found.tokens.map((probs, k) => k).filter(k => hidden[k]);
  if (!at.length) return "No token is hidden. Click one.";
  const surest = at.map(k => [Math.max(...found.tokens[k]), k]).sort((a, b) => b[0] - a[0])[0];
  const best = found.tokens[surest[1]].indexOf(surest[0]);
  return at.length + (at.length === 1 ? " token is" : " tokens are") + " hidden. The surest guess is token " + best + " at position " + (surest[1] + 1) + ", with probability " + surest[0].toFixed(3) + ".";
}
const ask = asker("answers/hidden-tokens", function () {
  const states = Number(element("states").value);
  tokens.forEach((token, k) => { tokens[k] = Math.min(token, states - 1); });
  return {states: states, stay: Number(element("stay").value), clear: Number(element("clear").value), tokens: tokens, hidden: hidden};
}, function (found) {
  element("says").textContent = sentence(found);
  element("positions").replaceChildren(...tokens.map((_, k) => position(k, found)));
});
// #tokens=0010&hidden=0100: as many tokens as digits, up to the longest row.
function takeTokens(text) {
  const digits = [...text].map(Number);
  if (!digits.length || digits.length > LONGEST || digits.some(d => !(d >= 0))) return;
  tokens.splice(0, tokens.length, ...digits);
  hidden.splice(0, hidden.length, ...digits.map((_, k) => hidden[k] || false));
}
function takeHidden(text) { hidden.forEach((_, k) => { hidden[k] = text[k] === "1"; }); }
const changed = dials(["states", "stay", "clear"], ask, {
  tokens: [() => tokens.join(""), takeTokens],
  hidden: [() => hidden.map(Number).join(""), takeHidden],
});
