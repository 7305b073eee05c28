// A list of which one marks some items: by click, by drag, with Shift for a range, and by keys.

/** `items` are elements of the listbox, which are marked where they are selected. */
export function picker(list, changed) {
  let items = [];
  let anchor = 0; // where a range begins
  let drag = null; // where it began, whether it marks, and what was marked before

  const isMarked = (n) => items[n].getAttribute("aria-selected") === "true";
  const marks = () => items.map((_, n) => isMarked(n));

  function mark(wanted) {
    items.forEach((item, n) => item.setAttribute("aria-selected", wanted[n]));
    changed(marks());
  }

  function range(from, to, on, before = marks()) {
    const [low, high] = [Math.min(from, to), Math.max(from, to)];
    mark(before.map((was, n) => (low <= n && n <= high ? on : was)));
  }

  function focus(n) {
    items.forEach((item, k) => { item.tabIndex = k === n ? 0 : -1; });
    items[n].focus();
  }

  function toggle(n) {
    anchor = n;
    range(n, n, !isMarked(n));
  }

  const numberOf = (target) => items.indexOf(target?.closest?.("[role=option]"));

  // ---------------------------------------------------------------- by hand

  list.addEventListener("pointerdown", (event) => {
    const n = numberOf(event.target);
    if (n < 0 || event.button !== 0) return;
    event.preventDefault(); // no text is selected
    focus(n);
    if (event.shiftKey) return range(anchor, n, true);
    drag = { on: !isMarked(n), before: marks() };
    toggle(n);
  });
  addEventListener("pointermove", (event) => {
    if (!drag) return;
    const n = numberOf(document.elementFromPoint(event.clientX, event.clientY));
    if (n >= 0) range(anchor, n, drag.on, drag.before);
  });
  addEventListener("pointerup", () => { drag = null; });
  addEventListener("pointercancel", () => { // the finger scrolls
    if (drag) mark(drag.before);
    drag = null;
  });
  list.addEventListener("click", (event) => {
    const n = numberOf(event.target);
    if (n >= 0 && event.detail === 0) toggle(n); // a screen reader's click, without a pointer
  });

  // ---------------------------------------------------------------- by keys

  /** The nearest item of the next line. */
  function below(n, way) {
    const boxes = items.map((item) => item.getBoundingClientRect());
    const middle = (box) => (box.left + box.right) / 2;
    const down = (k) => way * (boxes[k].top - boxes[n].top);
    const others = items.map((_, k) => k).filter((k) => down(k) > boxes[n].height / 2);
    const line = Math.min(...others.map(down));
    const off = (k) => Math.abs(middle(boxes[k]) - middle(boxes[n]));
    return others.filter((k) => down(k) < line + boxes[n].height / 2).sort((a, b) => off(a) - off(b))[0] ?? n;
  }

  list.addEventListener("keydown", (event) => {
    const n = numberOf(event.target);
    if (n < 0 || event.ctrlKey || event.altKey || event.metaKey) return;
    const last = items.length - 1;
    const moves = {
      ArrowLeft: () => Math.max(0, n - 1), ArrowRight: () => Math.min(last, n + 1),
      ArrowUp: () => below(n, -1), ArrowDown: () => below(n, 1), Home: () => 0, End: () => last,
    };
    if (event.key === " " || event.key === "Enter") toggle(n);
    else if (!(event.key in moves)) return;
    else {
      const next = moves[event.key]();
      if (!event.shiftKey) anchor = next;
      focus(next);
      if (event.shiftKey) range(anchor, next, true);
    }
    event.preventDefault();
  });

  return {
    fill(options, wanted) {
      items = options;
      drag = null;
      anchor = 0;
      items.forEach((item, n) => {
        item.setAttribute("role", "option");
        item.tabIndex = n ? -1 : 0;
      });
      mark(wanted);
    },
    mark,
    marks,
  };
}
