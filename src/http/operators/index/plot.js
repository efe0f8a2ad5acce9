// A plot of decisions a second.

/** The parts of a bar, from the bottom: what is over the limit is there, where it can be compared. */
const PARTS = [['error', 'failed', 'errors'], ['over', 'denied', 'over limit'], ['would', 'would', 'would be over'], ['ok', 'passed', 'within limit']];

/** The smallest round number that is at least `value`. */
function roundUp(value) {
  const unit = 10 ** Math.floor(Math.log10(Math.max(value, Number.MIN_VALUE)));
  return [1, 2, 3, 4, 5, 6, 8, 10].find(step => step * unit >= value * 0.999999) * unit;
}

class Plot extends BarPlot {
  now = 0;

  /** `steps` are its `Steps`; `marks` the minutes below it, those that a phone leaves out being `wide`. */
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
