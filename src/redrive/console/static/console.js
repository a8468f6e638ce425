// The JavaScript of all pages: live updates, keyboard shortcuts, copying, countdowns. Pages work without it.
"use strict";

const body = document.body;
const find = (selector, root = document) => root.querySelector(selector);
const findAll = (selector, root = document) => [...root.querySelectorAll(selector)];

// ---- show the controls that need JavaScript ----
const SCRIPTED = "[data-copy], [data-theme-toggle], [data-help], [data-select-all], [data-script]";
for (const element of findAll(SCRIPTED)) element.hidden = false;

// ---- theme: stored in a cookie, so that the server renders it without a flash ----
const toggle = find("[data-theme-toggle]");
const applyTheme = (name) => {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  find("[data-theme-word]").textContent = name;
};
applyTheme(document.documentElement.dataset.theme || "auto");
toggle.addEventListener("click", () => {
  const next = { auto: "dark", dark: "light", light: "auto" }[document.documentElement.dataset.theme || "auto"];
  document.cookie = `redrive_theme=${next}; path=${body.dataset.root || "/"}; max-age=31536000; samesite=strict`;
  applyTheme(next);
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
const relativeTime = (seconds) => {
  const [size, name] = STEPS.find(([step]) => Math.abs(seconds) >= 2 * step) || [1, "s"];
  const count = Math.round(Math.abs(seconds) / size);
  if (!count) return "now";
  return seconds > 0 ? `${count.toLocaleString("en")} ${name} ago` : `in ${count.toLocaleString("en")} ${name}`;
};
// How far this clock is ahead of the server's. A response takes time, so the smallest difference seen is the best estimate.
let clockAhead = Date.now() - Date.parse(body.dataset.now);
const syncClock = (now) => (clockAhead = Math.min(clockAhead, Date.now() - Date.parse(now)));
const tick = () => {
  for (const time of findAll("time[data-ago], time[data-countdown]")) {
    const seconds = (Date.now() - clockAhead - Date.parse(time.dateTime)) / 1000;
    if ("countdown" in time.dataset && seconds < 0 && seconds > -3600) {
      const left = Math.ceil(-seconds);
      time.textContent = `in ${left >= 60 ? `${Math.floor(left / 60)} min ` : ""}${left % 60} s`;
    } else time.textContent = relativeTime(seconds < 0 && seconds > -SLACK && "ago" in time.dataset ? 0 : seconds);
  }
};
setInterval(tick, 1000);

// ---- live updates: on a change event, fetch the page again and replace its live regions ----
// Wait while a button is pressed: a click that starts and ends on different elements is lost.
let pressed = false;
addEventListener("pointerdown", () => (pressed = true), true);
for (const end of ["pointerup", "pointercancel", "blur"]) addEventListener(end, () => (pressed = false), true);
const pointerReleased = async () => {
  while (pressed) await new Promise((done) => setTimeout(done, 50));
};
const sign = find("[data-live-sign]");
let running = null;
let refreshAgain = false;
let signedOut = false; // the session has ended
// A request during a fetch triggers one more fetch, because the change may be newer than the running fetch.
const refresh = () => {
  if (running) return (refreshAgain = true), running;
  const rounds = async () => {
    do {
      refreshAgain = false;
      await fetchPage();
    } while (refreshAgain);
    running = null;
  };
  return (running = rounds());
};
const fetchPage = async () => {
  try {
    const response = await fetch(location.href, { headers: { accept: "text/html" } });
    signedOut = response.redirected;
    if (signedOut) showConnection(false);
    else if (response.ok) {
      const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
      syncClock(fresh.body.dataset.now);
      await pointerReleased();
      for (const region of findAll("[data-live][id]")) {
        const replacement = fresh.getElementById(region.id);
        if (replacement && replacement.innerHTML !== region.innerHTML) replace(region, replacement);
      }
    }
  } catch {
    // The server is unreachable. The event stream shows that and reconnects.
  }
};
const TYPED = "input[name]:not([type=hidden], [type=checkbox])";
const replace = (region, replacement) => {
  const checked = new Set(findAll("input:checked", region).map((box) => box.value));
  const texts = findAll(TYPED, region).map((field) => [field.name, field.value]);
  const open = new Set(findAll("details[open][id]", region).map((each) => each.id));
  const focused = region.contains(document.activeElement) ? document.activeElement : null;
  const typing = focused?.matches(TYPED) ? focused.name : null;
  const place = focused && (focused.id ? `#${CSS.escape(focused.id)}` : focused.getAttribute("href") && `a[href="${CSS.escape(focused.getAttribute("href"))}"]`);
  const at = findAll("tbody tr", region).findIndex((row) => row.classList.contains("at"));
  const scrolled = findAll("[data-heat-scroll]", region).map((area) => area.scrollLeft);
  region.replaceChildren(...[...replacement.childNodes].map((node) => document.importNode(node, true)));
  for (const box of findAll("input[type=checkbox]", region)) if (checked.has(box.value)) box.checked = true;
  // A form is replaced when its buttons change. Keep the text that the operator has typed.
  for (const [name, value] of texts) for (const field of findAll(TYPED, region)) if (field.name === name) field.value = value;
  if (typing) findAll(TYPED, region).find((field) => field.name === typing)?.focus({ preventScroll: true });
  for (const each of findAll("details[id]", region)) if (open.has(each.id)) each.open = true;
  for (const element of findAll(SCRIPTED, region)) element.hidden = false;
  findAll("[data-heat-scroll]", region).forEach((area, at) => (area.scrollLeft = scrolled[at] ?? area.scrollWidth));
  if (at >= 0) findAll("tbody tr", region)[at]?.classList.add("at");
  showSelectedCount();
  if (place) find(place, region)?.focus({ preventScroll: true });
  tick();
  region.dispatchEvent(new CustomEvent("replaced", { bubbles: true }));
};
const showConnection = (connected) => {
  sign.hidden = false;
  sign.classList.toggle("off", !connected);
  find("[data-live-word]").textContent = connected ? "live" : signedOut ? "signed out" : "reconnecting";
};
// A server that can hold no streams, such as Django under WSGI, has pages that poll.
if (body.dataset.pollSeconds && find("[data-live]")) setInterval(() => document.hidden || refresh(), 1000 * body.dataset.pollSeconds);
if (body.dataset.liveAt && find("[data-live]")) {
  let stream = null, version = null, offline = 0;
  const listen = () => {
    stream = new EventSource(body.dataset.liveAt);
    stream.addEventListener("open", () => (clearTimeout(offline), showConnection(true)));
    stream.addEventListener("error", () => {
      // A stream ends after a minute, and the next one starts at once.
      clearTimeout(offline);
      offline = setTimeout(() => showConnection(false), stream?.readyState === EventSource.CLOSED ? 0 : 2000);
      // The server refused the stream and the browser does not retry: the session has ended, or too many pages listen.
      if (stream?.readyState === EventSource.CLOSED) setTimeout(() => stream?.readyState === EventSource.CLOSED && (listen(), refresh()), 15000);
    });
    stream.addEventListener("change", (event) => {
      if (event.data !== version) refresh();
      version = event.data;
    });
  };
  // A hidden page neither listens nor fetches. It is refreshed when it becomes visible.
  const onVisibilityChange = () => {
    if (document.hidden) stream?.close(), (stream = null);
    else if (!stream) listen(), refresh();
  };
  document.addEventListener("visibilitychange", onVisibilityChange);
  if (!document.hidden) listen();
  addEventListener("pagehide", () => stream?.close());

  // A background tab shows the number of problems in its title. It polls rarely, because browsers throttle such tabs.
  const title = document.title;
  const updateTitle = async () => {
    if (!document.hidden) return void (document.title = title);
    try {
      const response = await fetch(`${body.dataset.root}/api/overview`);
      const problems = response.ok ? (await response.json()).findings.length : 0;
      if (document.hidden) document.title = problems ? `(${problems}) ${title}` : title;
    } catch {
      // The server is unreachable. The title stays.
    }
  };
  document.addEventListener("visibilitychange", updateTitle);
  setInterval(updateTitle, 60000);
}

// ---- row selection ----
const showSelectedCount = () => {
  for (const word of findAll("[data-chosen]")) word.textContent = findAll("tbody input:checked").length;
};
document.addEventListener("change", (event) => {
  const box = event.target;
  if (box.matches("[data-select-all]")) for (const each of findAll("tbody input[type=checkbox]", box.closest("table"))) each.checked = box.checked;
  if (box.type === "checkbox") showSelectedCount();
});

// ---- confirmation by typing a number ----
for (const field of findAll("[data-type]")) {
  const button = find("[data-when-typed]", field.form);
  const check = () => (button.disabled = field.value.trim().replaceAll(",", "") !== field.dataset.type);
  field.addEventListener("input", check);
  check();
}

find(".menu [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

// ---- keyboard shortcuts ----
const help = find("#help");
find("[data-help]").addEventListener("click", () => help.showModal());
let awaitsPage = false;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input, select, textarea")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (awaitsPage) {
    awaitsPage = false;
    const link = find(`[data-go="${CSS.escape(event.key)}"]`);
    if (link) location.assign(link.href);
    return;
  }
  const rows = findAll("main tbody tr").filter((row) => find("a", row));
  const at = rows.findIndex((row) => row.classList.contains("at"));
  const go = (index) => {
    rows[at]?.classList.remove("at");
    rows[index].classList.add("at");
    rows[index].scrollIntoView({ block: "nearest" });
    find("a", rows[index]).focus({ preventScroll: true });
  };
  if (event.key === "?") help.showModal();
  else if (event.key === "g") (awaitsPage = true), setTimeout(() => (awaitsPage = false), 1500);
  else if (event.key === "/") find(".filter input, .filter select")?.focus(), event.preventDefault();
  else if (event.key === "j" && rows.length) go(Math.min(at + 1, rows.length - 1));
  else if (event.key === "k" && rows.length) go(Math.max(at - 1, 0));
  else if (event.key === "x" && at >= 0) find("input[type=checkbox]", rows[at])?.click();
});
