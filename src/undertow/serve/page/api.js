// Calls of the service, with the token that was asked for once, and streams that go on after a break.

import { ask, h } from "./dom.js";

const KEY = "undertow-token";
let asking = null;

function headers(more = {}) {
  const token = sessionStorage.getItem(KEY);
  return token ? { ...more, authorization: `Bearer ${token}` } : more;
}

async function askForToken() {
  asking ??= ask("Token", "This service needs a token. It is kept until you close this tab.", "Continue", [
    h("label", {}, "Token ", h("input", { name: "token", type: "password", required: true, autocomplete: "off" })),
  ]).finally(() => (asking = null));
  const form = await asking;
  if (form === null) throw new Error("This needs a token.");
  sessionStorage.setItem(KEY, form.get("token").trim());
}

async function send(path, { method = "GET", body, signal } = {}) {
  for (;;) {
    const content = body === undefined ? {} : { body: JSON.stringify(body) };
    const kind = body === undefined ? {} : { "content-type": "application/json" };
    const answer = await fetch(path, { method, headers: headers(kind), signal, ...content });
    if (answer.status === 401) {
      await askForToken();
      continue;
    }
    if (!answer.ok) {
      const problem = await answer.json().catch(() => ({}));
      throw new Error(problem.detail ?? `${answer.status} ${answer.statusText}`);
    }
    return answer;
  }
}

export async function call(path, options) {
  return (await send(path, options)).json();
}

export async function download(path, name) {
  const content = await (await send(path)).blob();
  const link = h("a", { href: URL.createObjectURL(content), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

export function place(name, ...more) {
  return ["v1/bandits", encodeURIComponent(name), ...more.map(encodeURIComponent)].join("/");
}

// Hear of every event after a number, once and in order, whatever happens to the connection.
// EventSource cannot send a token, so the stream is read with fetch.
export async function listen(name, after, heard, linked, signal) {
  let last = after;
  let pause = 250;
  while (!signal.aborted) {
    try {
      const answer = await send(`${place(name, "stream")}?after=${last}`, { signal });
      linked(true);
      pause = 250;
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        const parts = (rest + value).split("\n\n");
        rest = parts.pop();
        const found = [];
        for (const part of parts) {
          const data = part.split("\n").find((line) => line.startsWith("data: "));
          const event = data && JSON.parse(data.slice(6));
          if (event && event.n > last) {
            last = event.n;
            found.push(event);
          }
        }
        if (found.length) heard(found);
      }
    } catch (error) {
      if (signal.aborted) return;
      linked(false);
      pause = Math.min(pause * 2, 5000);
    }
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}
