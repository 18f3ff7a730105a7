"use strict";
// What the libraries leave to a page: drawing its figures, saving them, and every head's matrix.
const page = JSON.parse(document.getElementById("shown").textContent);
// No expression is compiled to code: the page's policy forbids it, and a label stays a label.
const options = { mode: "vega-lite", ast: true, actions: false, renderer: "svg" };
const draw = (place, specification, config = page.config.page) =>
  vegaEmbed(place, { datasets: page.datasets, ...specification }, { ...options, config });

const save = (address, name) => Object.assign(document.createElement("a"), { href: address, download: name }).click();
const file = (text, type) => URL.createObjectURL(new Blob([text], { type }));
function saveRows(rows, name) {
  const quoted = (cell) => (/[",\n]/.test(cell) ? `"${String(cell).replaceAll('"', '""')}"` : cell);
  save(file(rows.map((row) => row.map(quoted).join(",") + "\n").join(""), "text/csv"), `${name}.csv`);
}

// A figure as a paper wants it, whatever the reader's setting: on white.
async function saveFigure(name, form) {
  const specification = page.figures[name];
  const width = specification.width === "container" ? { width: 460 } : {};
  const { view } = await draw(document.createElement("div"), { ...specification, ...width }, page.config.file);
  if (form === "CSV") {
    const rows = (specification.datasets ?? page.datasets)[specification.data.name].filter((row) =>
      specification.transform.every(({ filter }) => row[filter.field] === filter.equal));
    saveRows([Object.keys(rows[0]), ...rows.map(Object.values)], name);
  } else if (form === "SVG") save(file(await view.toSVG(), "image/svg+xml"), `${name}.svg`);
  else save(await view.toImageURL("png", 2), `${name}.png`);
  view.finalize();
}

const zoom = document.getElementById("zoom");
let shown = null;
const bytes = page.matrices.map(({ levels }) => Uint8Array.from(atob(levels), (one) => one.charCodeAt(0)));
// The levels of a head, [rows, rows].
function levels(at, number) {
  const size = page.matrices[at].labels.length ** 2;
  return bytes[at].subarray(number * size, (number + 1) * size);
}
const headName = (number, heads) => `L${Math.floor(number / heads)}H${number % heads}`;
function tile(at, number, colour) {
  const { labels, heads, title } = page.matrices[at];
  const canvas = Object.assign(document.createElement("canvas"), { width: labels.length, height: labels.length });
  const picture = new ImageData(labels.length, labels.length);
  levels(at, number).forEach((level, entry) => {
    const rgb = level === page.unobserved ? [128, 128, 128] : colour((level / page.top) ** 2).match(/\d+/g);
    picture.data.set([...rgb, 255], 4 * entry);
  });
  canvas.getContext("2d").putImageData(picture, 0, 0);
  const button = Object.assign(document.createElement("button"), { type: "button", className: "tile" });
  const name = headName(number, heads);
  button.setAttribute("aria-label", `Show the matrix of head ${name}, ${title}`);
  button.append(canvas, name);
  button.addEventListener("click", () => show(at, number));
  return button;
}
async function show(at, number) {
  const { labels, special, largest, heads, title, patterns } = page.matrices[at];
  if (number < 0 || number >= largest.length) return;
  if (!zoom.open) zoom.showModal();
  const entries = [...levels(at, number)].map((level, entry) => ({
    from: labels[Math.floor(entry / labels.length)],
    to: labels[entry % labels.length],
    weight: level === page.unobserved ? null : largest[number] * (level / page.top) ** 2,
  })).filter(({ weight }) => weight !== null);
  const side = Math.min(560, zoom.clientWidth - 130, Math.max(innerHeight, 560) - 240);
  const specification = structuredClone({ ...page.matrix, width: side, height: side });
  const every = Math.ceil((labels.length * 40) / side);
  for (const axis of ["x", "y"]) {
    specification.encoding[axis].sort = labels;
    specification.encoding[axis].axis.values = labels.filter((_, row) => special.includes(row) || row % every === 0);
  }
  page.figures.zoom = { ...specification, data: { name: "entries" }, datasets: { entries }, transform: [] };
  document.getElementById("zoom-title").textContent = `${title}, ${headName(number, heads)}: ${patterns[number]}`;
  await draw("#zoom-chart", page.figures.zoom);
  shown = [at, number];
  zoom.dataset.ready = shown.join(" ");
}

(async () => {
  for (const place of document.querySelectorAll(".chart")) await draw(place, page.figures[place.dataset.figure]);
  const entries = [0, 1].map((weight) => ({ from: weight, to: weight, weight }));
  const { view } = await draw(document.createElement("div"), { ...page.matrix, data: { values: entries } });
  for (const place of document.querySelectorAll(".tiles")) {
    const { heads, largest } = page.matrices[place.dataset.set];
    place.style.setProperty("--heads", heads);
    place.append(...largest.map((_, number) => tile(place.dataset.set, number, view.scale("color"))));
  }
  document.documentElement.dataset.ready = "figures";
})();
document.addEventListener("click", ({ target }) => {
  const { figure, table, by } = target.dataset;
  if (target.matches("button") && figure) saveFigure(figure, target.textContent);
  if (table) {
    const rows = [...target.closest(".table").querySelectorAll("tr")];
    saveRows(rows.map((row) => [...row.cells].map((cell) => cell.textContent)), table);
  }
  if (by === "0") zoom.close();
  else if (by) show(shown[0], shown[1] + Number(by));
});
zoom.addEventListener("keydown", ({ key }) => {
  const by = { ArrowLeft: -1, ArrowRight: 1 }[key];
  if (by) show(shown[0], shown[1] + by);
});
