// A plot of decisions a second: a bar for each step of time.

/** The parts of a bar, from the bottom: what is over the limit is there, where it can be compared. */
const PARTS = [['error', 'failed', 'errors'], ['over', 'denied', 'over limit'], ['would', 'would', 'would be over'], ['ok', 'passed', 'within limit']];

/** The smallest round number that is at least `value`. */
function roundUp(value) {
  const unit = 10 ** Math.floor(Math.log10(Math.max(value, Number.MIN_VALUE)));
  return [1, 2, 3, 4, 5, 6, 8, 10].find(step => step * unit >= value * 0.999999) * unit;
}

/** Numbers beside a plot, at the bottom, the middle and the top. */
function showScale(element, top, text = value => fraction.format(value)) {
  if (element.top === top) return;
  element.top = top;
  element.replaceChildren(...[0, 0.5, 1].map(share => {
    const label = make('span', '', text(top * share));
    label.style.bottom = `${share * 100}%`;
    return label;
  }));
}

class Plot {
  now = 0;
  /** The step that is read, counted from now; null: none. */
  reading = null;
  /** `steps` are its `Steps`; `marks` the minutes below it, those that a phone leaves out being `wide`. */
  constructor(root, { title, what, steps, marks, wide = [], ids = {}, hasLegend = true }) {
    Object.assign(this, { steps, root });
    const named = (name, element) => {
      if (ids[name]) element.id = ids[name];
      this[name] = element;
      return element;
    };
    named('readout', make('span', 'readout'));
    this.legend = Object.fromEntries(PARTS.map(([part, className, text]) => [part, make('span', '', make('i', className), text)]));
    const legend = ['ok', 'over', 'would', 'error'].map(part => this.legend[part]);
    root.append(make('figcaption', '', title, ' ', hasLegend ? make('span', 'legend', ...legend) : null, ' ', this.readout));
    named('ys', make('div', 'ys'));
    named('area', make('div', 'area'));
    Object.assign(this.area, { tabIndex: 0, role: 'slider', ariaLabel: `${what}: arrow keys read it`, ariaValueMin: 1 - steps.count, ariaValueMax: 0, ariaValueNow: 0, ariaValueText: 'now' });
    const picture = svg('svg', { viewBox: `0 0 ${steps.count} 100`, preserveAspectRatio: 'none', 'aria-hidden': 'true' });
    const lines = marks.map(minutes => steps.count - (minutes * 60) / steps.seconds);
    picture.append(svg('path', { class: 'grid', d: `M0 0H${steps.count}M0 50H${steps.count}${lines.map(x => `M${x} 0V100`).join('')}` }));
    this.paths = {};
    for (const [part, className] of PARTS) {
      this.paths[part] = svg('path', { class: className });
      picture.append(this.paths[part]);
    }
    picture.append(svg('path', { class: 'base', d: `M0 100H${steps.count}` }));
    this.mark = make('span', 'mark');
    show(this.mark, false);
    this.mark.style.width = `calc(100% / ${steps.count})`;
    this.area.append(picture, this.mark);
    const times = make('div', 'xs', ...marks.map((minutes, i) => {
      const label = make('span', wide.includes(minutes) ? 'wide' : '', minutes ? `−${minutes} min` : 'now');
      label.style.left = `${(100 * lines[i]) / steps.count}%`;
      return label;
    }));
    root.append(this.ys, this.area, times);
    this.area.addEventListener('pointermove', event => {
      const { left, width } = this.area.getBoundingClientRect();
      this.point(Math.floor(((event.clientX - left) / width) * steps.count) - steps.count + 1);
    });
    for (const name of ['pointerleave', 'blur']) this.area.addEventListener(name, () => this.point(null));
    this.area.addEventListener('keydown', event => this.press(event));
  }

  /** Draws the steps that end at a time. */
  draw(now) {
    const { seconds, count, values } = this.steps;
    this.now = Math.floor(now / 1000 / seconds);
    const start = this.now - count + 1;
    let highest = 0;
    for (const { ok, over, error, would } of values.values()) highest = Math.max(highest, ok + over + error + would);
    const top = roundUp(Math.max(highest, 4));
    const paths = { ok: '', over: '', error: '', would: '' };
    for (const [step, rates] of values) {
      const x = step - start;
      if (x < 0 || x >= count) continue;
      let y = 100;
      for (const [part] of PARTS) {
        const height = (rates[part] / top) * 100;
        if (height > 0) paths[part] += `M${x} ${y.toFixed(2)}v${(-height).toFixed(2)}h1v${height.toFixed(2)}z`;
        y -= height;
      }
    }
    for (const [part, path] of Object.entries(paths)) this.paths[part].setAttribute('d', path);
    show(this.legend.would, paths.would !== '');
    showScale(this.ys, top);
    this.read();
  }

  /** Shows the numbers of the step that is pointed at. */
  read() {
    show(this.mark, this.reading !== null);
    if (this.reading === null) return setText(this.readout, '');
    const { seconds, count, values } = this.steps;
    this.mark.style.left = `${((count - 1 + this.reading) / count) * 100}%`;
    const step = this.now + this.reading;
    const rates = values.get(step);
    const parts = rates && [
      `${rate(rates.ok)} within`, `${rate(rates.over)} over limit`, rates.would ? `${rate(rates.would)} would be over` : '', rates.error ? `${rate(rates.error)} errors` : '',
      rates.p99 === undefined ? '' : `p50 ${milliseconds(rates.p50)}, p99 ${milliseconds(rates.p99)}`,
    ];
    setText(this.readout, `${timeOfDay(step * seconds * 1000)}: ${parts?.filter(Boolean).join(', ') ?? 'not known'}`);
  }

  point(reading) {
    this.reading = reading === null ? null : Math.min(0, Math.max(1 - this.steps.count, reading));
    this.read();
    if (reading === null) return;
    this.area.ariaValueNow = this.reading;
    this.area.ariaValueText = this.readout.textContent;
  }

  press(event) {
    const from = this.reading ?? 0;
    const to = {
      ArrowLeft: from - 1, ArrowDown: from - 1, ArrowRight: from + 1, ArrowUp: from + 1,
      PageDown: from - 30, PageUp: from + 30, Home: 1 - this.steps.count, End: 0, Escape: null,
    }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.point(to);
  }
}
