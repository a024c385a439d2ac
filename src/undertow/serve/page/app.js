// Which view an address shows: #/ all bandits, #/bandits/NAME one of them, and #/bandits/NAME/decisions/ID why.

import { showBandit } from "./bandit.js";
import { fill, h, notice } from "./dom.js";
import { showOverview } from "./overview.js";

const main = document.getElementById("main");
let leave = new AbortController();
let shown = "";

function parts() {
  return location.hash.replace(/^#\/?/, "").split("/").filter(Boolean).map(decodeURIComponent);
}

async function route() {
  const [kind, name, , id] = parts();
  if (kind === "bandits" && name !== undefined && shown === name) {
    main.dispatchEvent(new CustomEvent("why", { detail: id }));
    return;
  }
  leave.abort();
  leave = new AbortController();
  shown = kind === "bandits" ? name : "";
  const crumbs = document.getElementById("crumbs");
  fill(crumbs, h("a", { href: "#/" }, "Bandits"), shown ? h("span", { "aria-current": "page" }, shown) : null);
  document.title = shown ? `${shown} – undertow` : "undertow";
  fill(document.getElementById("link"));
  try {
    if (shown) await showBandit(main, shown, id, leave.signal);
    else await showOverview(main, leave.signal);
  } catch (error) {
    if (!leave.signal.aborted) {
      fill(main, h("p", { class: "empty" }, error.message));
      notice(error.message);
    }
  }
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", route);
route();
