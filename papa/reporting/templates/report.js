"use strict";
// What the libraries leave to a page: drawing its figures, saving them, and every head's matrix.
(() => {
  const page = JSON.parse(document.getElementById("shown").textContent);
  // No expression is compiled to code: the page's policy forbids it, and a label stays a label.
  const options = { mode: "vega-lite", ast: true, actions: false, tooltip: { theme: "custom" } };
  const draw = (place, specification, config = page.config.page, renderer = "svg") =>
    vegaEmbed(place, { datasets: page.datasets, ...specification }, { ...options, renderer, config });

  function save(text, type, name) {
    const link = document.createElement("a");
    link.href = text.startsWith("data:") ? text : URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
  }
  const csv = (rows) => rows.map((row) => row.map((cell) =>
    /[",\n]/.test(cell) ? `"${String(cell).replaceAll('"', '""')}"` : cell ?? "").join(",")).join("\n") + "\n";

  // A figure as a paper wants it, whatever the reader's setting: on white.
  async function saveFigure(name, form) {
    const specification = page.figures[name];
    const place = document.createElement("div");
    const { view, vgSpec } = await draw(place, { ...specification, ...(specification.width === "container" && { width: 460 }) }, page.config.file);
    if (form === "CSV") {
      const rows = (specification.datasets ?? page.datasets)[specification.data.name].filter((row) =>
        specification.transform.every(({ filter }) => !filter?.field || row[filter.field] === filter.equal));
      save(csv([Object.keys(rows[0]), ...rows.map(Object.values)]), "text/csv", `${name}.csv`);
    } else if (form === "SVG") save(await view.toSVG(), "image/svg+xml", `${name}.svg`);
    else save(await view.toImageURL("png", 2), "", `${name}.png`);
    view.finalize();
  }

  const zoom = document.getElementById("zoom");
  let shown = null;

  // The levels of a head, and its entries.
  const bytes = page.matrices.map(({ levels }) => Uint8Array.from(atob(levels), (one) => one.charCodeAt(0)));
  const title = (set, number) => `${set.title}, layer ${Math.floor(number / set.heads)}, head ${number % set.heads}`;
  function levels(at, number) {
    const size = page.matrices[at].labels.length ** 2;
    return bytes[at].subarray(number * size, (number + 1) * size);
  }
  function tile(at, number, colour) {
    const rows = page.matrices[at].labels.length;
    const canvas = Object.assign(document.createElement("canvas"), { width: rows, height: rows });
    const picture = new ImageData(rows, rows);
    levels(at, number).forEach((level, entry) => {
      const [red, green, blue] = level === page.unseen ? [128, 128, 128] : colour((level / page.top) ** 2).match(/\d+/g);
      picture.data.set([red, green, blue, 255], 4 * entry);
    });
    canvas.getContext("2d").putImageData(picture, 0, 0);
    const button = Object.assign(document.createElement("button"), { type: "button", className: "tile" });
    const { heads } = page.matrices[at];
    button.setAttribute("aria-label", `${title(page.matrices[at], number)}: show its matrix`);
    button.append(canvas, `${Math.floor(number / heads)}.${number % heads}`);
    button.addEventListener("click", () => show(at, number));
    return button;
  }
  async function show(at, number) {
    const set = page.matrices[at];
    const { labels } = set;
    if (number < 0 || number >= set.largest.length) return;
    if (!zoom.open) zoom.showModal();
    const entries = [];
    levels(at, number).forEach((level, entry) => {
      if (level === page.unseen) return;
      const weight = set.largest[number] * (level / page.top) ** 2;
      entries.push({ from: labels[Math.floor(entry / labels.length)], to: labels[entry % labels.length], weight });
    });
    const side = Math.min(560, zoom.clientWidth - 110, Math.max(innerHeight, 560) - 240);
    const specification = structuredClone({ ...page.matrix, width: side, height: side });
    for (const axis of ["x", "y"]) {
      const every = Math.ceil(labels.length * 40 / side);
      specification.encoding[axis].sort = labels;
      specification.encoding[axis].axis.values = labels.filter((label, row) => set.special.includes(row) || row % every === 0);
    }
    page.figures.zoom = { ...specification, data: { name: "entries" }, datasets: { entries }, transform: [] };
    document.getElementById("zoom-title").textContent = title(set, number);
    await draw("#zoom-chart", page.figures.zoom, page.config.page, "svg");
    shown = [at, number];
    zoom.dataset.ready = shown.join(" ");
  }
  const move = (by) => show(shown[0], shown[1] + by);

  (async () => {
    for (const place of document.querySelectorAll(".chart")) await draw(place, page.figures[place.dataset.figure]);
    const entries = [0, 1].map((weight) => ({ from: weight, to: weight, weight }));
    const { view } = await draw(document.createElement("div"), { ...page.matrix, data: { values: entries } });
    for (const place of document.querySelectorAll(".tiles")) {
      const at = Number(place.dataset.set);
      place.style.setProperty("--heads", page.matrices[at].heads);
      place.append(...page.matrices[at].largest.map((_, number) => tile(at, number, view.scale("color"))));
    }
    document.documentElement.dataset.ready = "figures";
  })();
  for (const button of document.querySelectorAll("button[data-figure]"))
    button.addEventListener("click", () => saveFigure(button.dataset.figure, button.textContent));
  for (const button of document.querySelectorAll("button[data-table]"))
    button.addEventListener("click", () => {
      const rows = [...button.closest("details").querySelectorAll("tr")];
      save(csv(rows.map((row) => [...row.cells].map((cell) => cell.textContent))), "text/csv", `${button.dataset.table}.csv`);
    });
  for (const button of document.querySelectorAll("button[data-by]")) button.addEventListener("click", () => move(Number(button.dataset.by)));
  zoom.addEventListener("keydown", ({ key }) => {
    if (key === "ArrowLeft") move(-1);
    if (key === "ArrowRight") move(1);
  });
})();
