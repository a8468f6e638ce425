// The heat map. A click opens a day. Dragging, Shift-click, or Shift with arrow keys and Enter selects days. The URL holds the selection.
// Without JavaScript, the dataset links of the rows still work.
"use strict";

const EVERY = -1; // the row of dates: selects the same days of every dataset
const rowsOf = (table) => [...table.tBodies[0].rows].map((row) => [...row.cells].filter((cell) => cell.tagName === "TD"));
const heat = () => document.querySelector("table.heat");
const dates = () => [...heat().tHead.rows[0].cells].filter((cell) => cell.dataset.day).map((cell) => cell.dataset.day);
const placeOf = (target) => {
  const cell = target.closest?.("table.heat td, table.heat th[data-day]");
  if (!cell) return null;
  const place = cell.cellIndex - 1; // the first column is the dataset
  return { cell, place, row: cell.tagName === "TH" ? EVERY : cell.parentElement.sectionRowIndex };
};

// ---- one day ----
const opened = (at) => {
  const line = heat().tBodies[0].rows[at.row];
  const cell = rowsOf(heat())[at.row][at.place];
  const query = new URLSearchParams({ source: line.dataset.source, query: line.dataset.query, since: dates()[at.place], until: dates()[at.place] });
  if (/^[ft]/.test(cell.className)) query.set("status", "failed");
  location.assign(`${heat().dataset.heat}?${query}`);
};

// ---- several ----
let picking = null; // { row, from, to }: by position, because a live update may replace the cells
let dragged = false;
const painted = () => {
  rowsOf(heat()).forEach((cells, row) =>
    cells.forEach((cell, place) => {
      const on = picking && (picking.row === EVERY || picking.row === row) && place >= Math.min(picking.from, picking.to) && place <= Math.max(picking.from, picking.to);
      cell.classList.toggle("k", Boolean(on));
    }),
  );
};
const taken = async () => {
  const { row, from, to } = picking;
  const line = row === EVERY ? null : heat().tBodies[0].rows[row];
  const address = new URL(location.href);
  for (const name of ["said", "ok", "of_source", "of_query"]) address.searchParams.delete(name);
  if (line) address.searchParams.set("of_source", line.dataset.source), address.searchParams.set("of_query", line.dataset.query);
  address.searchParams.set("from", dates()[Math.min(from, to)]);
  address.searchParams.set("to", dates()[Math.max(from, to)]);
  history.pushState(null, "", address);
  await refresh();
};
addEventListener("popstate", () => {
  picking = null;
  refresh();
});

document.addEventListener("pointerdown", (event) => {
  const found = placeOf(event.target);
  dragged = false;
  if (!found || event.button !== 0 || event.shiftKey || event.pointerType === "touch") return;
  picking = { row: found.row, from: found.place, to: found.place };
});
document.addEventListener("pointerover", (event) => {
  const found = placeOf(event.target);
  if (found && found.row !== EVERY && !found.cell.title && found.cell.className) found.cell.title = `${dates()[found.place]}: all requested partitions accepted`;
  if (!found || !picking || !(event.buttons & 1) || (!dragged && found.place === picking.to)) return;
  dragged = true;
  picking.to = found.place;
  painted();
});
document.addEventListener("pointerup", () => {
  if (picking && dragged) taken();
});
document.addEventListener("click", (event) => {
  const found = placeOf(event.target);
  if (dragged || !found) return void (dragged = false);
  if (event.shiftKey || found.row === EVERY) {
    const anchor = event.shiftKey && picking?.row === found.row ? picking.from : found.place;
    picking = { row: found.row, from: anchor, to: found.place };
    painted();
    taken();
  } else if (found.cell.className) opened(found);
});

// ---- keys ----
let at = null; // the cell that the keyboard is on
const mark = (to, moved = true) => {
  const rows = rowsOf(heat());
  if (!rows.length) return;
  at = { row: Math.min(Math.max(to.row, 0), rows.length - 1), place: Math.min(Math.max(to.place, 0), rows[0].length - 1) };
  for (const cell of document.querySelectorAll("table.heat td.here")) cell.classList.remove("here");
  const cell = rows[at.row][at.place];
  cell.classList.add("here");
  if (moved) cell.scrollIntoView({ block: "nearest", inline: "nearest" });
  const line = cell.parentElement.dataset;
  const word = document.querySelector("[data-heat-said]");
  if (word && moved) word.textContent = `${line.source}/${line.query}, ${cell.title || dates()[at.place]}${cell.classList.contains("k") ? ", selected" : ""}`;
};
document.addEventListener("keydown", (event) => {
  if (!event.target.matches?.("[data-heat-scroll]")) return;
  const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  if (moves[event.key]) {
    const before = at;
    const [row, place] = event.shiftKey ? [0, moves[event.key][1]] : moves[event.key];
    const to = at ? { row: at.row + row, place: at.place + place } : { row: 0, place: dates().length - 1 };
    mark(to);
    if (event.shiftKey) {
      const anchor = before && picking?.row === at.row ? picking.from : (before || at).place;
      picking = { row: at.row, from: anchor, to: at.place };
      painted();
    }
    event.preventDefault();
  } else if (event.key === "Enter" && at) {
    if (picking?.row === at.row && at.place === picking.to) taken().then(() => document.querySelector("#picked a.button")?.focus());
    else opened(at);
  } else if (event.key === "Escape" && picking) {
    picking = null;
    document.querySelector("#picked a.quiet") ? location.assign(document.querySelector("#picked a.quiet").href) : painted();
  }
});

// ---- restore the selection after a load or a live update ----
const resumed = () => {
  const first = document.querySelector("table.heat td.k");
  if (!picking && first) {
    const places = rowsOf(heat())[first.parentElement.sectionRowIndex].map((cell) => cell.classList.contains("k"));
    picking = { row: first.parentElement.sectionRowIndex, from: places.indexOf(true), to: places.lastIndexOf(true) };
  }
  if (picking) painted(); // the server does not know a selection that is not confirmed yet
  if (at) mark(at, false);
};
document.addEventListener("replaced", resumed);
for (const area of document.querySelectorAll("[data-heat-scroll]")) {
  area.scrollLeft = area.scrollWidth;
  document.querySelector("table.heat td.k")?.scrollIntoView({ block: "nearest", inline: "center" });
}
if (heat()) resumed();
