// Draws counts over time as stacked bars, one for each step of time, for the page of `weir replay --output html` and
// weir's page for operators. The pointer and the arrow keys read out values. It needs elements.js.

/** The width of a bar if there are few: as a share of its step, and at most as a share of the plot. */
const BAR_SHARE = 0.84, WIDEST_BAR = 0.08;

/** Labels the vertical axis of a plot, from 0 at the bottom to `top`, in equal steps. */
function showScale(element, top, text, steps = 2) {
  if (element.top === top) return;
  element.top = top;
  element.replaceChildren(...Array.from({ length: steps + 1 }, (_, i) => {
    const label = make('span', '', text((top * i) / steps));
    label.style.bottom = `${(100 * i) / steps}%`;
    return label;
  }));
}

/**
 * Returns the bars of `count` steps of width 1, as an SVG path for each part. `bar` returns the counts of a step. A
 * count of `top` is 100 high, and no count but 0 is lower than `least`.
 */
function barPaths(parts, count, bar, top, least) {
  const paths = Object.fromEntries(parts.map(([part]) => [part, '']));
  const width = count > 60 ? 1 : Math.min(BAR_SHARE, WIDEST_BAR * count);
  for (let i = 0; i < count; i += 1) {
    const counts = bar(i);
    let y = 100;
    for (const [part] of counts ? parts : []) {
      if (!(counts[part] > 0)) continue;
      const height = Math.max((counts[part] / top) * 100, least);
      paths[part] += `M${i + (1 - width) / 2} ${y.toFixed(2)}v${(-height).toFixed(2)}h${width}v${height.toFixed(2)}z`;
      y -= height;
    }
  }
  return paths;
}

class BarPlot {
  /** The step whose values are shown, counted from the last; null: none. */
  reading = null;
  /**
   * `parts` are the key, the class and the text of each part of a bar, from the bottom, `legend` the keys of those that
   * have a text. `ticks` are below the plot, `at` 0 to 1; a phone leaves out those that are `wide`.
   */
  constructor(root, { title, what, parts, count, ticks, legend = [], ids = {} }) {
    Object.assign(this, { root, parts, count, ticks });
    const named = (name, element) => {
      if (ids[name]) element.id = ids[name];
      this[name] = element;
      return element;
    };
    named('readout', make('span', 'readout'));
    this.legend = Object.fromEntries(parts.map(([part, className, text]) => [part, make('span', '', make('i', className), text)]));
    root.append(make('figcaption', '', title, ' ', legend.length ? make('span', 'legend', ...legend.map(part => this.legend[part])) : null, ' ', this.readout));
    named('ys', make('div', 'ys'));
    named('area', make('div', 'area'));
    Object.assign(this.area, { tabIndex: 0, role: 'slider', ariaLabel: `${what}: arrow keys read it`, ariaValueMin: 1 - count, ariaValueMax: 0, ariaValueNow: 0, ariaValueText: 'now' });
    const picture = svg('svg', { viewBox: `0 0 ${count} 100`, preserveAspectRatio: 'none', 'aria-hidden': 'true' });
    this.grid = svg('path', { class: 'grid' });
    this.paths = Object.fromEntries(parts.map(([part, className]) => [part, svg('path', { class: className })]));
    picture.append(this.grid, ...Object.values(this.paths), svg('path', { class: 'base', d: `M0 100H${count}` }));
    this.mark = make('span', 'mark');
    show(this.mark, false);
    this.mark.style.width = `calc(100% / ${count})`;
    this.area.append(picture, this.mark);
    const times = make('div', 'xs', ...ticks.map(({ at, text, day, wide }) => {
      const label = make('span', wide ? 'wide' : '', text, day ? make('b', '', day) : null);
      label.style.left = `${100 * at}%`;
      return label;
    }));
    root.append(this.ys, this.area, times);
    this.area.addEventListener('pointermove', event => {
      const { left, width } = this.area.getBoundingClientRect();
      this.point(Math.floor(((event.clientX - left) / width) * count) - count + 1);
    });
    for (const name of ['pointerleave', 'blur']) this.area.addEventListener(name, () => this.point(null));
    this.area.addEventListener('keydown', event => this.press(event));
  }

  /** Draws the counts of each step, which `bar` returns, with numbers up to `top` in so many steps. */
  draw(bar, top, { text, steps = 2, least = 0 }) {
    const lines = Array.from({ length: steps }, (_, i) => `M0 ${(100 * i) / steps}H${this.count}`);
    this.grid.setAttribute('d', [...lines, ...this.ticks.map(({ at }) => `M${at * this.count} 0V100`)].join(''));
    const paths = barPaths(this.parts, this.count, bar, top, least);
    for (const [part, path] of Object.entries(paths)) this.paths[part].setAttribute('d', path);
    showScale(this.ys, top, text, steps);
    this.read();
  }

  /** Shows the numbers of the step that is pointed at, which `describe` returns. */
  read() {
    show(this.mark, this.reading !== null);
    if (this.reading === null) return setText(this.readout, '');
    this.mark.style.left = `${((this.count - 1 + this.reading) / this.count) * 100}%`;
    setText(this.readout, this.describe(this.reading));
  }

  point(reading) {
    this.reading = reading === null ? null : Math.min(0, Math.max(1 - this.count, reading));
    this.read();
    if (reading === null) return;
    this.area.ariaValueNow = this.reading;
    this.area.ariaValueText = this.readout.textContent;
  }

  press(event) {
    const from = this.reading ?? 0;
    const to = {
      ArrowLeft: from - 1, ArrowDown: from - 1, ArrowRight: from + 1, ArrowUp: from + 1,
      PageDown: from - 30, PageUp: from + 30, Home: 1 - this.count, End: 0, Escape: null,
    }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.point(to);
  }
}
