// What the report adds for a reader with scripts: charts that answer, and a table to search. Without it the page shows
// the same charts as drawings and the same table whole.
"use strict";

// A chart takes the place of its drawing only once it is there: a failure leaves the drawing.
async function draw(panel) {
  const spec = JSON.parse(panel.nextElementSibling.textContent);
  const place = document.createElement("div");
  // `ast`: expressions are interpreted, the page's policy forbids eval. SVG: colours are CSS variables.
  const options = { ast: true, renderer: "svg", actions: false, mode: "vega-lite" };
  await vegaEmbed(place, spec, options);
  panel.replaceChildren(place);
  panel.dataset.drawn = "yes";
}

function drawWhenSeen(panels) {
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((one) => one.isIntersecting)) {
      seen.unobserve(entry.target);
      draw(entry.target).catch((error) => console.error("chart not drawn", error));
    }
  }, { rootMargin: "600px" });
  panels.forEach((panel) => seen.observe(panel));
}

const text = (cell) => cell.textContent;
const value = (cell) => cell.dataset.sort ?? cell.querySelector("button")?.dataset.text ?? text(cell);

// Sorting itself is the library's: it listens to clicks in the head of a table.
function sortable(table) {
  for (const head of table.tHead.rows[0].cells) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = text(head);
    head.replaceChildren(button);
  }
}

function copyable(button) {
  button.addEventListener("click", async () => {
    const said = text(button);
    try {
      await navigator.clipboard.writeText(button.dataset.text);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = said; }, 1500);
    } catch {
      window.prompt("Copy this:", button.dataset.text);
    }
  });
  button.hidden = false;
}

function searchable(form) {
  const table = form.nextElementSibling.querySelector("table");
  const heads = [...table.tHead.rows[0].cells].map(text);
  const rows = [...table.tBodies[0].rows];
  const words = rows.map((row) => text(row).toLowerCase());
  const { search, save } = form.elements;
  const filters = [...form.querySelectorAll("select")];
  const counted = form.querySelector("output");

  for (const filter of filters) {
    const column = Number(filter.dataset.column);
    for (const name of [...new Set(rows.map((row) => text(row.cells[column])))].sort()) filter.add(new Option(name));
  }

  function show() {
    const wanted = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    rows.forEach((row, i) => {
      const kept = wanted.every((word) => words[i].includes(word)) &&
        filters.every((filter) => !filter.value || text(row.cells[filter.dataset.column]) === filter.value);
      row.hidden = !kept;
      count += Number(kept);
    });
    counted.value = `${count.toLocaleString("en")} of ${rows.length.toLocaleString("en")} layers`;
  }

  // A spreadsheet takes what begins with one of these for a formula.
  const plain = (field) => (/^[=+@-]/.test(field) && isNaN(field) ? `'${field}` : field);
  const quoted = (field) => (/[",\n]/.test(field) ? `"${field.replaceAll('"', '""')}"` : field);
  save.addEventListener("click", () => {
    const shown = [...table.tBodies[0].rows].filter((row) => !row.hidden);
    const lines = shown.map((row) => [save.dataset.arch, save.dataset.kind, ...[...row.cells].map(value)]);
    const csv = [["arch", "device kind", ...heads], ...lines].map((line) => line.map(plain).map(quoted).join(",") + "\n").join("");
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([csv], { type: "text/csv" }));
    link.download = save.dataset.file;
    link.click();
    URL.revokeObjectURL(link.href);
  });

  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", show);
  form.hidden = false;
  show();
}

document.querySelectorAll("form.controls").forEach(searchable);
document.querySelectorAll("table.sortable").forEach(sortable);
document.querySelectorAll("button.copy").forEach(copyable);
document.getElementById("hint").hidden = false;
drawWhenSeen([...document.querySelectorAll(".panel")]);
