// Elements, and numbers as people read them. Whatever comes from a bandit becomes text, never markup.

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child != null && child !== false));
  return element;
}

export function fill(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child != null && child !== false));
}

export function number(value, digits = 3) {
  if (value == null || Number.isNaN(value)) return "–";
  if (Math.abs(value) >= 1e6) return value.toLocaleString("en-US", { notation: "compact", maximumSignificantDigits: digits });
  if (Number.isInteger(value)) return value.toLocaleString("en-GB");
  const size = Math.abs(value);
  if (size !== 0 && size < 1e-3) return value.toExponential(2);
  return value.toLocaleString("en-GB", { maximumSignificantDigits: digits });
}

export function span(seconds) {
  if (seconds == null) return "–";
  if (seconds < 1) return `${Math.max(Math.round(seconds * 1000), 0)} ms`;
  if (seconds < 100) return `${Math.round(seconds)} s`;
  if (seconds < 6000) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

export function ago(at) {
  return at == null ? "never" : `${span(Math.max(Date.now() / 1000 - at, 0))} ago`;
}

export function clock(at) {
  return at == null ? "–" : new Date(at * 1000).toLocaleString("en-GB");
}

export function pill(ok, text) {
  return h("span", { class: `pill ${ok == null ? "unknown" : ok ? "ok" : "bad"}` }, text);
}

export function notice(text) {
  const place = document.getElementById("notices");
  const shown = h("div", { class: "notice" }, text, h("button", { onclick: () => shown.remove() }, "Close"));
  place.append(shown);
  while (place.children.length > 3) place.firstChild.remove();
}

// Ask before something is done; resolves to the form's values, or null.
export function ask(title, explanation, action, fields = []) {
  return new Promise((resolve) => {
    const form = h(
      "form",
      { method: "dialog" },
      h("h2", { id: "asked" }, title),
      h("p", {}, explanation),
      fields,
      h(
        "div",
        { class: "actions" },
        h("button", { value: "yes", class: "primary" }, action), // first, so that it is what Enter does
        h("button", { value: "no", formnovalidate: true }, "Cancel"),
      ),
    );
    const dialog = h("dialog", { "aria-labelledby": "asked" }, form);
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes" ? new FormData(form) : null);
    });
    document.body.append(dialog);
    dialog.showModal();
    (form.querySelector("input") ?? form.querySelector(".primary")).focus();
  });
}
