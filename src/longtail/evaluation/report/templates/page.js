"use strict";
// Tables sort and filter. Without this script they show the same numbers.
const collator = new Intl.Collator(undefined, { numeric: true });
const value = (row, column) => row.cells[column].firstChild ? row.cells[column].firstChild.textContent.trim() : "";
const number = (text) => Number(text.replace("−", "-").replaceAll(",", ""));
const isMissing = (text) => text === "" || text === "–";

function compare(a, b) {
  const x = number(a), y = number(b);
  return Number.isNaN(x) || Number.isNaN(y) ? collator.compare(a, b) : x - y;
}

function sort(table, column, descending) {
  const body = table.tBodies[0];
  const rows = Array.from(body.rows, (row) => [value(row, column), row]);
  rows.sort(([a], [b]) => {
    if (isMissing(a) || isMissing(b)) return isMissing(a) - isMissing(b);
    return descending ? compare(b, a) : compare(a, b);
  });
  body.append(...rows.map(([, row]) => row));
}

for (const table of document.querySelectorAll("table.sortable")) {
  const heads = Array.from(table.tHead.rows[0].cells);
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const before = head.getAttribute("aria-sort");
      const first = head.classList.contains("n") ? "descending" : "ascending";
      const other = first === "ascending" ? "descending" : "ascending";
      const next = before === first ? other : first;
      heads.forEach((h) => h.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", next);
      sort(table, column, next === "descending");
    });
  });
  if (table.dataset.filter && table.tBodies[0].rows.length > 12) {
    const field = document.createElement("input");
    field.type = "search";
    field.className = "filter";
    field.placeholder = table.dataset.filter;
    field.setAttribute("aria-label", table.dataset.filter);
    field.addEventListener("input", () => {
      const wanted = field.value.toLowerCase();
      for (const row of table.tBodies[0].rows) row.hidden = !row.cells[0].textContent.toLowerCase().includes(wanted);
    });
    table.parentElement.before(field);
  }
}
