// The operators' web page: decisions over time, for the plots. `/v1/history` has the time before the page was opened,
// and each `/v1/status` adds the last second.

/** How often the last hour is read again: the status has neither latencies nor the sums of rules. */
const HISTORY_MS = 30000;

/** Rates per second, by steps of time of `seconds` each. */
class Steps {
  values = new Map();
  /** The end of the last answer of `/v1/history`, in seconds since 1970: it contains the statuses before. */
  knownUntil = -Infinity;
  /** The last second that was added. Statuses are not quite a second apart. */
  addedUntil = -Infinity;

  constructor(seconds, count) {
    Object.assign(this, { seconds, count });
  }

  add(from, to, rates) {
    const { seconds, values } = this;
    const last = Math.floor(to / 1000);
    // A clock that was set back starts over.
    if (last < this.addedUntil) this.addedUntil = -Infinity;
    const first = Math.max(Math.min(Math.floor(from / 1000), last), this.knownUntil, this.addedUntil + 1, last - this.count * seconds);
    this.addedUntil = last;
    for (let second = first; second <= last; second += 1) {
      const step = Math.floor(second / seconds);
      const sum = values.get(step) ?? { ok: 0, over: 0, error: 0, would: 0 };
      for (const part of ['ok', 'over', 'error', 'would']) sum[part] += rates[part] / seconds;
      values.set(step, sum);
    }
    // Times of another server, or before its clock was set.
    const lastStep = Math.floor(last / seconds);
    for (const step of values.keys()) if (step <= lastStep - this.count || step > lastStep) values.delete(step);
  }

  /** Takes an answer of `/v1/history`. Where nothing was sampled, what is known stays. */
  fill({ from, until, series }) {
    const { seconds, values } = this;
    const start = Math.round(Date.parse(from) / 1000 / seconds);
    const { within_limit: ok, over_limit: over, would_be_over_limit: would, errors, p50_ms: p50, p99_ms: p99 } = series;
    ok.forEach((count, i) => {
      if (count === null) return;
      const rates = { ok: count / seconds, over: over[i] / seconds, error: errors[i] / seconds, would: would[i] / seconds };
      if (p99?.[i] !== undefined && p99[i] !== null) Object.assign(rates, { p50: p50[i], p99: p99[i] });
      values.set(start + i, rates);
    });
    this.knownUntil = Math.round(Date.parse(until) / 1000);
  }
}

const past = {
  seconds: new Steps(1, 300),
  hour: new Steps(10, 360),
  /** Sums of the last hour by rule, and whether rules without hits may be missing. */
  rules: new Map(), areAllRules: false,
};

/** Reads without asking for a token: the status does that. Returns null if there is no answer. */
async function readQuietly(path) {
  try {
    return await (await request('GET', path)).json();
  } catch (error) {
    if (error instanceof Rejection) return null;
    throw error;
  }
}

/** Reads the history of everything. At the start, and after a lost connection, also its seconds and changes. */
async function readHistory(isAll) {
  const answer = await readQuietly('/v1/history?step=10s');
  if (!answer) return;
  past.hour.fill(answer);
  past.rules = new Map(answer.rules.map(row => [ruleKey(row.domain, row.rule), row]));
  past.areAllRules = answer.rules.length < 200;
  view?.refresh?.(null);
  if (isAll) {
    await fillEvents(answer);
    const seconds = await readQuietly('/v1/history?step=1s');
    if (seconds) past.seconds.fill(seconds);
  }
  if (!document.hidden) showStatus(null);
}

setInterval(() => {
  if (!lost && !document.hidden) readHistory(false);
}, HISTORY_MS);

const HOUR_MARKS = { marks: [60, 50, 40, 30, 20, 10, 0], wide: [50, 40, 20, 10] };
let plots = [];

function makePlots() {
  plots = [
    new Plot(byId('plot'), { title: 'Decisions a second', what: 'Decisions a second in the last five minutes', steps: past.seconds, marks: [5, 4, 3, 2, 1, 0], wide: [4, 2, 1], ids: { ys: 'ys', area: 'area', readout: 'readout' } }),
    new Plot(byId('hour-plot'), { title: 'The last hour', what: 'Decisions a second in the last hour', steps: past.hour, ...HOUR_MARKS, hasLegend: false }),
    new LatencyPlot(byId('latency-plot'), past.hour),
  ];
}
