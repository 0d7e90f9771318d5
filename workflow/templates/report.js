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
const value = (cell) => cell.dataset.value ?? (cell.matches(".number") ? text(cell).replaceAll(",", "") : text(cell));

function compare(a, b) {
  const [x, y] = [Number(a), Number(b)];
  if (a !== "" && b !== "" && !Number.isNaN(x) && !Number.isNaN(y)) return x - y;
  return a < b ? -1 : Number(a > b);
}

function searchable(form) {
  const table = form.nextElementSibling.querySelector("table");
  const body = table.tBodies[0];
  const rows = [...body.rows];
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
    counted.value = `${count.toLocaleString("en")} of ${rows.length.toLocaleString("en")} shapes`;
  }

  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = text(head);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const keys = new Map(rows.map((row) => [row, value(row.cells[column])]));
      body.append(...[...rows].sort((a, b) => (down ? -1 : 1) * compare(keys.get(a), keys.get(b))));
    });
    head.replaceChildren(button);
  });

  // A spreadsheet takes what begins with one of these for a formula.
  const plain = (field) => (/^[=+@-]/.test(field) && isNaN(field) ? `'${field}` : field);
  const quoted = (field) => (/[",\n]/.test(field) ? `"${field.replaceAll('"', '""')}"` : field);
  save.addEventListener("click", () => {
    const heads = [...table.tHead.rows[0].cells].map(text);
    const shown = [...body.rows].filter((row) => !row.hidden);
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
document.getElementById("hint").hidden = false;
drawWhenSeen([...document.querySelectorAll(".panel")]);
