"use strict";
// A noise map says what is under the pointer: data-noise holds names, times, ratios and 1/(V' - 1).
const tip = document.getElementById("tip");

for (const figure of document.querySelectorAll("[data-noise]")) {
  const noise = JSON.parse(figure.dataset.noise), n = noise.names.length;
  figure.querySelectorAll(".cells").forEach((cells, map) => {
    const mark = cells.nextElementSibling;
    const size = name => cells[name].baseVal.value;
    const place = (at, start, length) => Math.min(Math.max(Math.floor((at - start) / length * n), 0), n - 1);

    const tell = event => {
      const box = cells.getBoundingClientRect();
      const to = place(event.clientX, box.left, box.width), from = place(event.clientY, box.top, box.height);
      const ratio = noise.ratios[map][from][to];
      const what = ratio === null ? "stays itself, which does not count"
        : `${digits(ratio * noise.uniform)}, ${digits(ratio)} times uniform noise's`;
      tip.textContent = `${noise.names[from]} → ${noise.names[to]}, t = ${noise.times[map]}: ${what}`;
      mark.setAttribute("x", size("x") + to * size("width") / n);
      mark.setAttribute("y", size("y") + from * size("height") / n);
      mark.setAttribute("width", size("width") / n);
      mark.setAttribute("height", size("height") / n);
      show(event.clientX, event.clientY);
    };
    const hide = () => { tip.hidden = true; mark.setAttribute("width", 0); };
    cells.addEventListener("pointermove", tell);
    cells.addEventListener("pointerdown", tell);
    cells.addEventListener("pointerleave", hide);
  });
}

function digits(x) {
  return x >= 100 ? x.toFixed(0) : x >= 0.001 || x === 0 ? String(Number(x.toPrecision(3))) : x.toExponential(1);
}

function show(x, y) {
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(Math.min(x + 14, innerWidth - width - 8), 8)}px`;
  tip.style.top = `${y + 22 + height > innerHeight ? y - height - 14 : y + 22}px`;
}
