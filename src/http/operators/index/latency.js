// The time of decisions, p50 and p99, below the plot of the last hour.

const milliseconds = value => (value === null ? '–' : `${value < 9.995 ? value.toFixed(2) : number(value)}${NBSP}ms`);

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
