// The operators' web page: the plots of decisions per second, and of their latency (p50 and p99).

/** The parts of a bar, from the bottom: what is over the limit is there, where it can be compared. */
const PARTS = [['error', 'failed', 'errors'], ['over', 'denied', 'over limit'], ['would', 'would', 'would be over'], ['ok', 'passed', 'within limit']];

/** The smallest round number that is at least `value`. */
function roundUp(value) {
  const unit = 10 ** Math.floor(Math.log10(Math.max(value, Number.MIN_VALUE)));
  return [1, 2, 3, 4, 5, 6, 8, 10].find(step => step * unit >= value * 0.999999) * unit;
}

class Plot extends BarPlot {
  now = 0;

  /** `steps` has the values (see history.js), `marks` the minutes below the plot; a phone omits those in `wide`. */
  constructor(root, { steps, marks, wide = [], hasLegend = true, ...more }) {
    const ticks = marks.map(minutes => ({ at: 1 - (minutes * 60) / (steps.seconds * steps.count), text: minutes ? `−${minutes} min` : 'now', wide: wide.includes(minutes) }));
    super(root, { ...more, parts: PARTS, count: steps.count, ticks, legend: hasLegend ? ['ok', 'over', 'would', 'error'] : [] });
    this.steps = steps;
  }

  /** Draws the steps that end at a time. */
  draw(now) {
    const { seconds, count, values } = this.steps;
    this.now = Math.floor(now / 1000 / seconds);
    const start = this.now - count + 1;
    let highest = 0;
    for (const { ok, over, error, would } of values.values()) highest = Math.max(highest, ok + over + error + would);
    super.draw(i => values.get(start + i), roundUp(Math.max(highest, 4)), { text: value => fraction.format(value) });
    show(this.legend.would, this.paths.would.getAttribute('d') !== '');
  }

  describe(reading) {
    const { seconds, values } = this.steps;
    const step = this.now + reading;
    const rates = values.get(step);
    const parts = rates && [
      `${rate(rates.ok)} within`, `${rate(rates.over)} over limit`, rates.would ? `${rate(rates.would)} would be over` : '', rates.error ? `${rate(rates.error)} errors` : '',
      rates.p99 === undefined ? '' : `p50 ${milliseconds(rates.p50)}, p99 ${milliseconds(rates.p99)}`,
    ];
    return `${timeOfDay(step * seconds * 1000)}: ${parts?.filter(Boolean).join(', ') ?? 'not known'}`;
  }
}

const milliseconds = value => (value === null ? '–' : `${value < 9.995 ? value.toFixed(2) : number(value)}${NBSP}ms`);

/** The time of decisions, below the plot of the last hour. */
class LatencyPlot {
  constructor(root, steps) {
    Object.assign(this, { root, steps });
    const legend = (className, text) => make('span', '', make('i', className), text);
    const picture = svg('svg', { viewBox: `0 0 ${steps.count} 100`, preserveAspectRatio: 'none', 'aria-hidden': 'true' });
    this.paths = { p50: svg('path', { class: 'line p50' }), p99: svg('path', { class: 'line p99' }) };
    picture.append(svg('path', { class: 'grid', d: `M0 0H${steps.count}M0 50H${steps.count}` }), this.paths.p99, this.paths.p50, svg('path', { class: 'base', d: `M0 100H${steps.count}` }));
    this.ys = make('div', 'ys strip');
    root.append(make('figcaption', '', 'Time of a decision ', make('span', 'legend', legend('p50', 'p50'), legend('p99', 'p99'))), this.ys, make('div', 'area strip', picture));
  }

  draw(now) {
    const { seconds, count, values } = this.steps;
    const start = Math.floor(now / 1000 / seconds) - count + 1;
    const known = [...values].filter(([step, { p99 }]) => step >= start && Number.isFinite(p99)).sort(([a], [b]) => a - b);
    show(this.root, known.length > 0);
    const top = roundUp(Math.max(0.01, ...known.map(([, { p99 }]) => p99)));
    for (const part of ['p50', 'p99']) {
      let [path, last] = ['', null];
      for (const [step, rates] of known) {
        path += `${step - 1 === last ? 'L' : 'M'}${step - start + 0.5} ${(100 - (rates[part] / top) * 100).toFixed(2)}`;
        last = step;
      }
      this.paths[part].setAttribute('d', path);
    }
    showScale(this.ys, top, value => (value ? `${value < 1 ? value.toFixed(2) : fraction.format(value)}${NBSP}ms` : '0'));
  }
}
