// The heat map: a click or Enter opens a day, arrow keys move, and the newest days are in sight. Its rows lead on without it.
"use strict";

const cellOf = (target) => {
  const cell = target.closest("table.heat tbody td:not(.num)");
  return cell && { cell, row: cell.parentElement, table: cell.closest("table") };
};
const dayOf = ({ cell, table }) => table.tHead.rows[0].cells[cell.cellIndex].dataset.day;
const open = (found) => {
  const day = dayOf(found);
  const query = new URLSearchParams({ source: found.row.dataset.source, query: found.row.dataset.query, since: day, until: day });
  if (/^[ft]/.test(found.cell.className)) query.set("status", "failed");
  location.assign(`${found.table.dataset.heat}?${query}`);
};
document.addEventListener("click", (event) => {
  const found = cellOf(event.target);
  if (found && found.cell.className) open(found);
});
document.addEventListener("mouseover", (event) => {
  const found = cellOf(event.target);
  if (found && !found.cell.title && found.cell.className) found.cell.title = `${dayOf(found)}: all accepted`;
});

let at = null; // the row and the place in it that the keys are at; regions may be replaced under it
const cells = () => [...document.querySelectorAll("table.heat tbody tr")].map((row) => [...row.querySelectorAll("td:not(.num)")]);
const mark = (to) => {
  const rows = cells();
  if (!rows.length) return;
  at = { row: Math.min(Math.max(to.row, 0), rows.length - 1), place: Math.min(Math.max(to.place, 0), rows[0].length - 1) };
  for (const cell of document.querySelectorAll("table.heat td.here")) cell.classList.remove("here");
  const cell = rows[at.row][at.place];
  cell.classList.add("here");
  cell.scrollIntoView({ block: "nearest", inline: "nearest" });
  const said = document.querySelector("[data-heat-said]");
  if (said) said.textContent = `${cell.parentElement.dataset.source}/${cell.parentElement.dataset.query}, ${cell.title || dayOf({ cell, table: cell.closest("table") })}`;
};
document.addEventListener("keydown", (event) => {
  if (!event.target.matches?.("[data-heat-scroll]")) return;
  const rows = cells();
  const now = at || { row: 0, place: (rows[0]?.length || 1) - 1 };
  const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  if (moves[event.key]) {
    const [row, place] = moves[event.key];
    mark(at ? { row: now.row + row, place: now.place + place } : now);
    event.preventDefault();
  } else if (event.key === "Enter" && at) {
    const cell = rows[at.row][at.place];
    open({ cell, row: cell.parentElement, table: cell.closest("table") });
  }
});
for (const area of document.querySelectorAll("[data-heat-scroll]")) area.scrollLeft = area.scrollWidth;
