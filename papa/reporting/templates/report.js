"use strict";
// What the libraries leave to a page: drawing its figures, saving them, and showing one head's matrix in large.
(() => {
  const page = JSON.parse(document.getElementById("shown").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  // No expression is compiled to code: the page's policy forbids it, and a label stays a label.
  const options = { mode: "vega-lite", ast: true, actions: false, tooltip: { theme: "custom" } };
  const views = new Map();

  const save = (text, type, name) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    URL.revokeObjectURL(link.href);
  };

  // A figure as a paper wants it, whatever the reader's setting: on white, as its inputs are set now.
  async function saveFigure(name) {
    const view = await views.get(name);
    const specification = structuredClone(page.charts[name]);
    specification.width = view.width();
    specification.params = (specification.params ?? []).map(({ bind, ...parameter }) =>
      bind ? { ...parameter, value: view.signal(parameter.name) } : parameter);
    const drawn = await vegaEmbed(document.createElement("div"), specification,
      { ...options, renderer: "svg", config: page.config.light });
    save(await drawn.view.toSVG(), "image/svg+xml", `${name}.svg`);
    drawn.finalize();
  }

  async function drawFigures() {
    for (const place of document.querySelectorAll(".chart")) {
      const { chart } = place.dataset;
      const drawn = vegaEmbed(place, page.charts[chart], { ...options, renderer: "svg", config: page.config.page });
      views.set(chart, drawn.then(({ view }) => view));
      await drawn;
    }
    for (const button of document.querySelectorAll("button[data-svg]")) {
      button.addEventListener("click", () => saveFigure(button.dataset.svg));
    }
    document.documentElement.dataset.ready = "figures";
  }

  // The levels of a matrix from the pixels of its image: the PNG's own bytes, one a pixel, each row after a filter byte of 0.
  async function levels(address, rows) {
    const bytes = Uint8Array.from(atob(address.slice(address.indexOf(",") + 1)), (one) => one.charCodeAt(0));
    const header = new DataView(bytes.buffer);
    const parts = [];
    for (let at = 8; at < bytes.length; at += 12 + header.getUint32(at)) {
      const end = at + 8 + header.getUint32(at);
      if (String.fromCharCode(...bytes.subarray(at + 4, at + 8)) === "IDAT") parts.push(bytes.subarray(at + 8, end));
    }
    const stream = new Blob(parts).stream().pipeThrough(new DecompressionStream("deflate"));
    const pixels = new Uint8Array(await new Response(stream).arrayBuffer());
    return (row, column) => pixels[row * (rows + 1) + 1 + column];
  }

  async function cellsOf(tile) {
    const set = page.matrices[tile.dataset.set];
    const { labels } = set;
    const largest = set.largest[tile.dataset.number];
    const level = await levels(tile.querySelector("img").src, labels.length);
    const cells = [];
    for (let row = 0; row < labels.length; row += 1) {
      for (let column = 0; column < labels.length; column += 1) {
        const found = level(row, column);
        if (found === page.unseen) continue;
        const weight = largest * (found / page.top) ** 2;
        cells.push({ row, column, from: labels[row], to: labels[column], weight });
      }
    }
    return cells;
  }

  const zoom = document.getElementById("zoom");
  let shown = null;

  // A slot is named about every 60 pixels, and always [CLS] and [SEP].
  function ticks(set, size) {
    const between = Math.max(1, Math.ceil(60 / size));
    const even = set.labels.map((_, row) => row).filter((row) => row % between === 0);
    const near = (row) => set.special.some((one) => one !== row && Math.abs(one - row) * size < 40);
    return [...new Set([...set.special, ...even.filter((row) => !near(row))])].sort((a, b) => a - b);
  }

  function matrix(set, tile, cells, room) {
    const specification = structuredClone(page.matrix);
    // Whole pixels of the screen, or the rectangles would leave seams.
    const step = Math.max(1, Math.floor((room * devicePixelRatio) / set.labels.length)) / devicePixelRatio;
    specification.data.values = cells;
    specification.width = { step };
    specification.height = { step };
    specification.description = `Constant matrix of ${title(set, tile)}`;
    specification.params = [
      { name: "labels", value: set.labels },
      { name: "special", value: set.special },
      { name: "ticks", value: ticks(set, step) },
      { name: "largest", value: set.largest[tile.dataset.number] || 1 },
    ];
    return specification;
  }

  const title = (set, tile) => `${set.title}, layer ${tile.dataset.layer}, head ${tile.dataset.head}`;

  async function show(tile) {
    const set = page.matrices[tile.dataset.set];
    if (!zoom.open) zoom.showModal();
    document.getElementById("zoom-title").textContent = title(set, tile);
    const facts = document.getElementById("zoom-facts");
    facts.replaceChildren(...Object.entries(set.facts[tile.dataset.number]).flatMap(([name, value]) => {
      const [term, fact] = [document.createElement("dt"), document.createElement("dd")];
      term.textContent = name;
      fact.textContent = value;
      return [term, fact];
    }));
    const cells = await cellsOf(tile);
    const inside = zoom.clientWidth - 2 * parseFloat(getComputedStyle(zoom).paddingLeft);
    const room = Math.min(Math.max(innerHeight, 560) - 240, inside - 76, 560);
    const drawn = await vegaEmbed("#zoom-chart", matrix(set, tile, cells, room),
      { ...options, renderer: "canvas", config: page.config[dark.matches ? "dark" : "light"] });
    shown?.drawn.finalize();
    shown = { tile, set, cells, drawn };
    zoom.dataset.ready = `${tile.dataset.set} ${tile.dataset.number}`;
  }

  const near = (tile, by) => {
    const tiles = [...tile.closest(".encoder").querySelectorAll(".tile")];
    return tiles[tiles.indexOf(tile) + by];
  };
  const move = (by) => {
    const next = shown && near(shown.tile, by);
    if (next) show(next);
  };
  const file = ({ set, tile }) => `${set.name}-layer-${tile.dataset.layer}-head-${tile.dataset.head}`;

  // By a score all tiles of an encoder stand in one list, below the layers that they left.
  function arrange(name) {
    for (const place of document.querySelectorAll(".encoder")) {
      const tiles = [...place.querySelectorAll(".tile")];
      const number = (tile) => Number(tile.dataset.number);
      tiles.sort((a, b) => number(a) - number(b));
      const values = page.matrices[tiles[0].dataset.set].scores[name];
      const layers = [...place.querySelectorAll(".layer")];
      for (const layer of layers) layer.hidden = Boolean(values);
      let sorted = place.querySelector(".sorted");
      if (values && !sorted) {
        sorted = document.createElement("ul");
        sorted.className = "tiles sorted";
        place.append(sorted);
      }
      if (values) tiles.sort((a, b) => values[number(a)] - values[number(b)]);
      for (const tile of tiles) {
        (values ? sorted : layers[tile.dataset.layer].querySelector("ul")).append(tile.parentElement);
      }
    }
  }
  const order = document.getElementById("tile-order");
  order?.addEventListener("change", () => arrange(order.value));

  // The tables of heads: a click on a heading sorts, numbers as numbers; what is typed filters.
  function sortable(table) {
    const body = table.tBodies[0];
    table.querySelectorAll("th").forEach((heading, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = heading.textContent;
      heading.replaceChildren(button);
      button.addEventListener("click", () => {
        const falling = heading.ariaSort === "ascending";
        for (const other of table.querySelectorAll("th")) other.removeAttribute("aria-sort");
        heading.ariaSort = falling ? "descending" : "ascending";
        const text = (row) => row.cells[column].textContent;
        const numbers = new Intl.Collator(undefined, { numeric: true });
        const compared = (a, b) => parseFloat(text(a)) - parseFloat(text(b)) || numbers.compare(text(a), text(b));
        body.append(...[...body.rows].sort((a, b) => (falling ? -1 : 1) * compared(a, b)));
      });
    });
  }
  for (const table of document.querySelectorAll("#heads ~ details table")) sortable(table);
  const filter = document.getElementById("head-filter");
  filter?.addEventListener("input", () => {
    for (const row of document.querySelectorAll("#heads ~ details tbody tr")) {
      const cells = [...row.cells].map((cell) => cell.textContent).join(" ").toLowerCase();
      row.hidden = !cells.includes(filter.value.trim().toLowerCase());
    }
  });

  for (const tile of document.querySelectorAll(".tile")) tile.addEventListener("click", () => show(tile));
  document.getElementById("zoom-before").addEventListener("click", () => move(-1));
  document.getElementById("zoom-after").addEventListener("click", () => move(1));
  document.getElementById("zoom-svg").addEventListener("click", async () => {
    const specification = matrix(shown.set, shown.tile, shown.cells, 512);
    const drawn = await vegaEmbed(document.createElement("div"), specification,
      { ...options, renderer: "svg", config: page.config.light });
    save(await drawn.view.toSVG(), "image/svg+xml", `${file(shown)}.svg`);
    drawn.finalize();
  });
  document.getElementById("zoom-csv").addEventListener("click", () => {
    const rows = shown.cells.map(({ from, to, weight }) => `${from},${to},${weight.toPrecision(4)}`);
    save(["slot_from,slot_to,mean_attention", ...rows, ""].join("\n"), "text/csv", `${file(shown)}.csv`);
  });
  zoom.addEventListener("keydown", (event) => {
    if (event.key === "ArrowLeft") move(-1);
    if (event.key === "ArrowRight") move(1);
  });
  zoom.addEventListener("close", () => shown?.tile.focus());
  dark.addEventListener("change", () => zoom.open && show(shown.tile));

  // Paper has no folded parts.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")];
    for (const part of folded) part.open = true;
  });
  addEventListener("afterprint", () => {
    for (const part of folded) part.open = false;
  });
  drawFigures();
})();
