// The heat map. A click opens a day. Dragging, Shift-click, or Shift with arrow keys and Enter selects days.
// The URL holds the selection.
// Without JavaScript, the dataset links of the rows still work.
"use strict";

const NAMES = { s: "accepted", p: "pending", r: "newer run rejected", f: "failed", t: "gave up" }; // by class, of one customer
const ALL_ROWS = -1; // the row of dates: selects the same days of every dataset
const cellRows = (table) => [...table.tBodies[0].rows].map((row) => [...row.cells].filter((cell) => cell.tagName === "TD"));
const heatTable = () => document.querySelector("table.heat");
const columnDates = () => [...heatTable().tHead.rows[0].cells].filter((cell) => cell.dataset.day).map((cell) => cell.dataset.day);
const hitAt = (target) => {
  const cell = target.closest?.("table.heat td, table.heat th[data-day]");
  if (!cell) return null;
  const place = cell.cellIndex - 1; // the first column is the dataset
  return { cell, place, row: cell.tagName === "TH" ? ALL_ROWS : cell.parentElement.sectionRowIndex };
};

// ---- open one day ----
const openDay = (day) => {
  const line = heatTable().tBodies[0].rows[day.row];
  const cell = cellRows(heatTable())[day.row][day.place];
  const query = new URLSearchParams({ source: line.dataset.source, query: line.dataset.query, since: columnDates()[day.place], until: columnDates()[day.place] });
  if (line.dataset.customer) query.set("customer", line.dataset.customer);
  else if (/^[ft]/.test(cell.className)) query.set("status", "failed");
  location.assign(`${heatTable().dataset.heat}?${query}`);
};

// ---- select several days ----
let selection = null; // { row, from, to }: by position, because a live update may replace the cells
let dragged = false;
const paintSelection = () => {
  cellRows(heatTable()).forEach((cells, row) =>
    cells.forEach((cell, place) => {
      const on = selection && (selection.row === ALL_ROWS || selection.row === row) && place >= Math.min(selection.from, selection.to) && place <= Math.max(selection.from, selection.to);
      cell.classList.toggle("k", Boolean(on));
    }),
  );
};
const confirmSelection = async () => {
  if (heatTable().dataset.single !== undefined) return void ((selection = null), paintSelection()); // customers by day
  const { row, from, to } = selection;
  const line = row === ALL_ROWS ? null : heatTable().tBodies[0].rows[row];
  const address = new URL(location.href);
  for (const name of ["said", "ok", "of_source", "of_query"]) address.searchParams.delete(name);
  if (line) address.searchParams.set("of_source", line.dataset.source), address.searchParams.set("of_query", line.dataset.query);
  address.searchParams.set("from", columnDates()[Math.min(from, to)]);
  address.searchParams.set("to", columnDates()[Math.max(from, to)]);
  history.pushState(null, "", address);
  await refresh();
};
addEventListener("popstate", () => {
  selection = null;
  refresh();
});

document.addEventListener("pointerdown", (event) => {
  const hit = hitAt(event.target);
  dragged = false;
  if (!hit || event.button !== 0 || event.shiftKey || event.pointerType === "touch") return;
  selection = { row: hit.row, from: hit.place, to: hit.place };
});
document.addEventListener("pointerover", (event) => {
  const hit = hitAt(event.target);
  if (hit && hit.row !== ALL_ROWS && !hit.cell.title && hit.cell.className) hit.cell.title = `${columnDates()[hit.place]}: ${hit.cell.parentElement.dataset.customer ? NAMES[hit.cell.className[0]] : "all requested partitions accepted"}`;
  if (!hit || !selection || !(event.buttons & 1) || (!dragged && hit.place === selection.to)) return;
  dragged = true;
  selection.to = hit.place;
  paintSelection();
});
document.addEventListener("pointerup", () => {
  if (selection && dragged) confirmSelection();
});
document.addEventListener("click", (event) => {
  const hit = hitAt(event.target);
  if (dragged || !hit) return void (dragged = false);
  if (event.shiftKey || hit.row === ALL_ROWS) {
    const anchor = event.shiftKey && selection?.row === hit.row ? selection.from : hit.place;
    selection = { row: hit.row, from: anchor, to: hit.place };
    paintSelection();
    confirmSelection();
  } else if (hit.cell.className) openDay(hit);
});

// ---- keyboard ----
let cursor = null; // the cell that the keyboard is on
const moveCursor = (to, moved = true) => {
  const rows = cellRows(heatTable());
  if (!rows.length) return;
  cursor = { row: Math.min(Math.max(to.row, 0), rows.length - 1), place: Math.min(Math.max(to.place, 0), rows[0].length - 1) };
  for (const cell of document.querySelectorAll("table.heat td.here")) cell.classList.remove("here");
  const cell = rows[cursor.row][cursor.place];
  cell.classList.add("here");
  if (moved) cell.scrollIntoView({ block: "nearest", inline: "nearest" });
  const line = cell.parentElement.dataset;
  const statusText = document.querySelector("[data-heat-status]");
  if (statusText && moved) statusText.textContent = `${line.customer || `${line.source}/${line.query}`}, ${cell.title || columnDates()[cursor.place]}${cell.classList.contains("k") ? ", selected" : ""}`;
};
document.addEventListener("keydown", (event) => {
  if (!event.target.matches?.("[data-heat-scroll]")) return;
  const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  if (moves[event.key]) {
    const before = cursor;
    const [row, place] = event.shiftKey ? [0, moves[event.key][1]] : moves[event.key];
    const to = cursor ? { row: cursor.row + row, place: cursor.place + place } : { row: 0, place: columnDates().length - 1 };
    moveCursor(to);
    if (event.shiftKey) {
      const anchor = before && selection?.row === cursor.row ? selection.from : (before || cursor).place;
      selection = { row: cursor.row, from: anchor, to: cursor.place };
      paintSelection();
    }
    event.preventDefault();
  } else if (event.key === "Enter" && cursor) {
    if (selection?.row === cursor.row && cursor.place === selection.to) confirmSelection().then(() => document.querySelector("#picked a.button")?.focus());
    else openDay(cursor);
  } else if (event.key === "Escape" && selection) {
    selection = null;
    document.querySelector("#picked a.quiet") ? location.assign(document.querySelector("#picked a.quiet").href) : paintSelection();
  }
});

// ---- restore the selection after a load or a live update ----
const restoreSelection = () => {
  const first = document.querySelector("table.heat td.k");
  if (!selection && first) {
    const places = cellRows(heatTable())[first.parentElement.sectionRowIndex].map((cell) => cell.classList.contains("k"));
    selection = { row: first.parentElement.sectionRowIndex, from: places.indexOf(true), to: places.lastIndexOf(true) };
  }
  if (selection) paintSelection(); // the server does not know a selection that is not confirmed yet
  if (cursor) moveCursor(cursor, false);
};
document.addEventListener("replaced", restoreSelection);
for (const area of document.querySelectorAll("[data-heat-scroll]")) {
  area.scrollLeft = area.scrollWidth;
  document.querySelector("table.heat td.k")?.scrollIntoView({ block: "nearest", inline: "center" });
}
if (heatTable()) restoreSelection();
