// The console's own JavaScript: live regions, keys, copying, countdowns. Every page works without it.
"use strict";

const body = document.body;
const one = (selector, root = document) => root.querySelector(selector);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];

// ---- show the controls that need JavaScript ----
const SCRIPTED = "[data-copy], [data-theme-toggle], [data-help], [data-select-all], [data-script]";
for (const element of all(SCRIPTED)) element.hidden = false;

// ---- theme: stored in a cookie, so that the server renders it without a flash ----
const toggle = one("[data-theme-toggle]");
const themed = (name) => {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  one("[data-theme-word]").textContent = name;
};
themed(document.documentElement.dataset.theme || "auto");
toggle.addEventListener("click", () => {
  const next = { auto: "dark", dark: "light", light: "auto" }[document.documentElement.dataset.theme || "auto"];
  document.cookie = `redrive_theme=${next}; path=${body.dataset.root || "/"}; max-age=31536000; samesite=strict`;
  themed(next);
});

// ---- copying a command ----
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const line = button.dataset.copy;
  try {
    await navigator.clipboard.writeText(line);
  } catch {
    const area = document.createElement("textarea"); // http on another address has no clipboard
    area.value = line;
    body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = "Copy"), 1500);
});

// ---- relative times and countdowns: keep the text that the server rendered up to date ----
const SLACK = 5; // seconds of clock difference that are shown as "now" instead of as future
const STEPS = [[86400, "d"], [3600, "h"], [60, "min"]];
const said = (seconds) => {
  const [size, name] = STEPS.find(([step]) => Math.abs(seconds) >= 2 * step) || [1, "s"];
  const many = Math.round(Math.abs(seconds) / size);
  if (!many) return "now";
  return seconds > 0 ? `${many.toLocaleString("en")} ${name} ago` : `in ${many.toLocaleString("en")} ${name}`;
};
// How far this clock is ahead of the server's. A response takes time, so the smallest difference seen is the best estimate.
let ahead = Date.now() - Date.parse(body.dataset.now);
const synchronised = (now) => (ahead = Math.min(ahead, Date.now() - Date.parse(now)));
const tick = () => {
  for (const time of all("time[data-ago], time[data-countdown]")) {
    const seconds = (Date.now() - ahead - Date.parse(time.dateTime)) / 1000;
    if ("countdown" in time.dataset && seconds < 0 && seconds > -3600) {
      const left = Math.ceil(-seconds);
      time.textContent = `in ${left >= 60 ? `${Math.floor(left / 60)} min ` : ""}${left % 60} s`;
    } else time.textContent = said(seconds < 0 && seconds > -SLACK && "ago" in time.dataset ? 0 : seconds);
  }
};
setInterval(tick, 1000);

// ---- live updates: on a change event, fetch the page again and replace its live regions ----
// Wait while a button is pressed: a click that starts and ends on different elements is lost.
let pressed = false;
addEventListener("pointerdown", () => (pressed = true), true);
for (const end of ["pointerup", "pointercancel", "blur"]) addEventListener(end, () => (pressed = false), true);
const released = async () => {
  while (pressed) await new Promise((done) => setTimeout(done, 50));
};
const sign = one("[data-live-sign]");
let running = null;
let again = false;
let out = false; // the session has ended
// A request during a fetch triggers one more fetch, because the change may be newer than the running fetch.
const refresh = () => {
  if (running) return (again = true), running;
  const rounds = async () => {
    do {
      again = false;
      await fetched();
    } while (again);
    running = null;
  };
  return (running = rounds());
};
const fetched = async () => {
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    out = answer.redirected;
    if (out) heard(false);
    else if (answer.ok) {
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      synchronised(fresh.body.dataset.now);
      await released();
      for (const region of all("[data-live][id]")) {
        const other = fresh.getElementById(region.id);
        if (other && other.innerHTML !== region.innerHTML) replace(region, other);
      }
    }
  } catch {
    // The server is unreachable. The event stream shows that and reconnects.
  }
};
const TYPED = "input[name]:not([type=hidden], [type=checkbox])";
const replace = (region, other) => {
  const chosen = new Set(all("input:checked", region).map((box) => box.value));
  const texts = all(TYPED, region).map((field) => [field.name, field.value]);
  const open = new Set(all("details[open][id]", region).map((each) => each.id));
  const focused = region.contains(document.activeElement) ? document.activeElement : null;
  const typing = focused?.matches(TYPED) ? focused.name : null;
  const place = focused && (focused.id ? `#${CSS.escape(focused.id)}` : focused.getAttribute("href") && `a[href="${CSS.escape(focused.getAttribute("href"))}"]`);
  const at = all("tbody tr", region).findIndex((row) => row.classList.contains("at"));
  const scrolled = all("[data-heat-scroll]", region).map((area) => area.scrollLeft);
  region.replaceChildren(...[...other.childNodes].map((node) => document.importNode(node, true)));
  for (const box of all("input[type=checkbox]", region)) if (chosen.has(box.value)) box.checked = true;
  // A form is replaced when its buttons change. Keep the text that the operator has typed.
  for (const [name, value] of texts) for (const field of all(TYPED, region)) if (field.name === name) field.value = value;
  if (typing) all(TYPED, region).find((field) => field.name === typing)?.focus({ preventScroll: true });
  for (const each of all("details[id]", region)) if (open.has(each.id)) each.open = true;
  for (const element of all(SCRIPTED, region)) element.hidden = false;
  all("[data-heat-scroll]", region).forEach((area, at) => (area.scrollLeft = scrolled[at] ?? area.scrollWidth));
  if (at >= 0) all("tbody tr", region)[at]?.classList.add("at");
  counted();
  if (place) one(place, region)?.focus({ preventScroll: true });
  tick();
  region.dispatchEvent(new CustomEvent("replaced", { bubbles: true }));
};
const heard = (well) => {
  sign.hidden = false;
  sign.classList.toggle("off", !well);
  one("[data-live-word]").textContent = well ? "live" : out ? "signed out" : "reconnecting";
};
if (body.dataset.liveAt && one("[data-live]")) {
  let stream = null;
  const listen = () => {
    stream = new EventSource(body.dataset.liveAt);
    stream.addEventListener("open", () => heard(true));
    stream.addEventListener("error", () => {
      heard(false);
      // The server refused the stream and the browser does not retry: the session has ended, or too many pages listen.
      if (stream?.readyState === EventSource.CLOSED) setTimeout(() => stream?.readyState === EventSource.CLOSED && (listen(), refresh()), 15000);
    });
    stream.addEventListener("change", refresh);
  };
  // A hidden page neither listens nor fetches. It is refreshed when it becomes visible.
  const shown = () => {
    if (document.hidden) stream?.close(), (stream = null);
    else if (!stream) listen(), refresh();
  };
  document.addEventListener("visibilitychange", shown);
  if (!document.hidden) listen();
  addEventListener("pagehide", () => stream?.close());

  // A background tab shows the number of problems in its title. It polls rarely, because browsers throttle such tabs.
  const titled = document.title;
  const watch = async () => {
    if (!document.hidden) return void (document.title = titled);
    try {
      const answer = await fetch(`${body.dataset.root}/api/overview`);
      const wrong = answer.ok ? (await answer.json()).findings.length : 0;
      if (document.hidden) document.title = wrong ? `(${wrong}) ${titled}` : titled;
    } catch {
      // The server is unreachable. The title stays.
    }
  };
  document.addEventListener("visibilitychange", watch);
  setInterval(watch, 60000);
}

// ---- row selection ----
const counted = () => {
  for (const word of all("[data-chosen]")) word.textContent = all("tbody input:checked").length;
};
document.addEventListener("change", (event) => {
  const box = event.target;
  if (box.matches("[data-select-all]")) for (const each of all("tbody input[type=checkbox]", box.closest("table"))) each.checked = box.checked;
  if (box.type === "checkbox") counted();
});

// ---- confirmation by typing a number ----
for (const field of all("[data-type]")) {
  const button = one("[data-when-typed]", field.form);
  const check = () => (button.disabled = field.value.trim().replaceAll(",", "") !== field.dataset.type);
  field.addEventListener("input", check);
  check();
}

one(".menu [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

// ---- keyboard shortcuts ----
const help = one("#help");
one("[data-help]").addEventListener("click", () => help.showModal());
let waiting = false;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input, select, textarea")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (waiting) {
    waiting = false;
    const link = one(`[data-go="${CSS.escape(event.key)}"]`);
    if (link) location.assign(link.href);
    return;
  }
  const rows = all("main tbody tr").filter((row) => one("a", row));
  const at = rows.findIndex((row) => row.classList.contains("at"));
  const go = (index) => {
    rows[at]?.classList.remove("at");
    rows[index].classList.add("at");
    rows[index].scrollIntoView({ block: "nearest" });
    one("a", rows[index]).focus({ preventScroll: true });
  };
  if (event.key === "?") help.showModal();
  else if (event.key === "g") (waiting = true), setTimeout(() => (waiting = false), 1500);
  else if (event.key === "/") one(".filter input, .filter select")?.focus(), event.preventDefault();
  else if (event.key === "j" && rows.length) go(Math.min(at + 1, rows.length - 1));
  else if (event.key === "k" && rows.length) go(Math.max(at - 1, 0));
  else if (event.key === "x" && at >= 0) one("input[type=checkbox]", rows[at])?.click();
});
