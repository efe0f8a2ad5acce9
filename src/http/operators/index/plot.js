// The plot of the last five minutes, a bar for each second.

const SECONDS = 300;
const PARTS = ['ok', 'over', 'error'];

/** Rates by the second in which they ended. */
const history = new Map();

/** Adds the rates from one time to another. */
function addToHistory(from, to, rates) {
  const last = Math.floor(to / 1000);
  for (let second = Math.min(Math.floor(from / 1000) + 1, last); second <= last; second += 1) history.set(second, rates);
  // Times of another server, or before its clock was set.
  for (const second of history.keys()) if (second <= last - SECONDS || second > last) history.delete(second);
}

/** The smallest round number that is at least `value`. */
function roundUp(value) {
  const unit = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 4, 5, 8, 10].find(step => step * unit >= value) * unit;
}

const plot = {
  now: 0,
  /** The second that is read, counted from now; null: none. */
  reading: null,
  draw(now) {
    this.now = Math.floor(now / 1000);
    const start = this.now - SECONDS + 1;
    let highest = 4;
    for (const rates of history.values()) highest = Math.max(highest, rates.ok + rates.over + rates.error);
    const top = roundUp(highest);
    const paths = { ok: '', over: '', error: '' };
    for (const [second, rates] of history) {
      const x = second - start;
      if (x < 0 || x >= SECONDS) continue;
      // What is over the limit is at the bottom, where it can be compared.
      let y = 100;
      for (const part of ['error', 'over', 'ok']) {
        const height = (rates[part] / top) * 100;
        if (height > 0) paths[part] += `M${x} ${y.toFixed(2)}v${(-height).toFixed(2)}h1v${height.toFixed(2)}z`;
        y -= height;
      }
    }
    for (const part of PARTS) byId(`plot-${part}`).setAttribute('d', paths[part]);
    if (this.top !== top) {
      this.top = top;
      byId('ys').replaceChildren(...[0, 0.5, 1].map(share => {
        const label = make('span', '', number(top * share));
        label.style.bottom = `${share * 100}%`;
        return label;
      }));
    }
    this.read();
  },
  frame() {
    byId('grid').setAttribute('d', `M0 0H300M0 50H300${[0, 60, 120, 180, 240].map(x => `M${x} 0V100`).join('')}`);
    byId('xs').replaceChildren(...[5, 4, 3, 2, 1, 0].map(minutes => {
      const label = make('span', [4, 2, 1].includes(minutes) ? 'wide' : '', minutes ? `−${minutes} min` : 'now');
      label.style.left = `${100 - minutes * 20}%`;
      return label;
    }));
  },
  /** Shows the numbers of the second that is pointed at. */
  read() {
    const isShown = this.reading !== null;
    show(byId('mark'), isShown);
    if (!isShown) return setText(byId('readout'), '');
    byId('mark').style.left = `${((SECONDS - 1 + this.reading) / SECONDS) * 100}%`;
    const second = this.now + this.reading;
    const rates = history.get(second);
    const at = new Date(second * 1000).toISOString().slice(11, 19);
    const numbers = rates && [
      `${rate(rates.ok)} within`, `${rate(rates.over)} over limit`, rates.error ? `${rate(rates.error)} errors` : '',
    ].filter(Boolean).join(', ');
    setText(byId('readout'), `${at}: ${numbers ?? 'not known'}`);
  },
  point(reading) {
    this.reading = reading === null ? null : Math.min(0, Math.max(1 - SECONDS, reading));
    this.read();
    if (reading === null) return;
    byId('area').setAttribute('aria-valuenow', this.reading);
    byId('area').setAttribute('aria-valuetext', byId('readout').textContent);
  },
};

byId('area').addEventListener('pointermove', event => {
  const { left, width } = byId('area').getBoundingClientRect();
  plot.point(Math.floor(((event.clientX - left) / width) * SECONDS) - SECONDS + 1);
});
byId('area').addEventListener('pointerleave', () => plot.point(null));
byId('area').addEventListener('blur', () => plot.point(null));
byId('area').addEventListener('keydown', event => {
  const from = plot.reading ?? 0;
  const to = {
    ArrowLeft: from - 1, ArrowDown: from - 1, ArrowRight: from + 1, ArrowUp: from + 1,
    PageDown: from - 30, PageUp: from + 30, Home: 1 - SECONDS, End: 0, Escape: null,
  }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  plot.point(to);
});
plot.frame();
