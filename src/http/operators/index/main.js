// The operators' web page: starts it, and updates its parts after each answer of `/v1/status`, once a second.

/** Statuses that the tiles are a mean of. */
const MEAN_OF = 5;
/** The shortest time between statuses to compute rates of. */
const MIN_SECONDS = 0.3;

/** The most changes of an answer: there may have been more. */
const MAX_CHANGES = 100;

/** The last status that weir has sent. */
let sent = null;

/** Shows an answer of `/v1/status`; null (304) means that the last status still holds. */
function receiveAnswer(answer) {
  const isRestarted = answer && sent && answer.status.uptime_ms < sent.uptime_ms;
  if (isRestarted) {
    startOver();
    addEvent('restarted', 'weir has restarted: counts start over.');
  }
  const passed = Date.now() - statusAt;
  const next = answer?.status ?? { ...sent, uptime_ms: status.uptime_ms + passed, at: new Date(serverNow()).toISOString() };
  if (status && next.controls.version !== status.controls.version) readControls();
  sent = answer?.status ?? sent;
  receiveStatus(next);
  answer?.changes.forEach(receiveChange);
  if (isRestarted || answer?.changes.length === MAX_CHANGES) readAll();
}

/** Rates start with what is counted from now on: the history has the time between. */
function startOver() {
  totals = [];
  for (const list of keyLists) list.counts = new Map();
  ruleRates = new Map();
}

/** Reads what the status does not have. */
function readAll() {
  readControls();
  readRules();
  readHistory(true);
}

function receiveStatus(next) {
  redactedKeys = new Set(next.redacted_keys);
  const { uptime_ms: uptime } = next;
  const before = totals.at(-1);
  const seconds = before ? (uptime - before.uptime) / 1000 : null;
  // The first status may come shortly before the next one: too short for rates.
  if (seconds !== null && seconds < MIN_SECONDS) return;
  const at = Date.parse(next.at);
  totals.push({ at, uptime, counts: countsOf(next) });
  if (totals.length > MEAN_OF + 1) totals.shift();
  countRules(next.rules, seconds);
  if (before) {
    const { ok, over, error, shadow } = ratesSince(before, totals.at(-1));
    // Those that only a shadow mode lets pass are not within their limits in the history, either.
    const rates = { ok: Math.max(0, ok - shadow), over, error, would: shadow };
    for (const steps of [past.seconds, past.hour]) steps.add(before.at, at, rates);
  }
  status = next;
  statusAt = Date.now();
  showProblems(next.problems);
  if (!document.hidden) showStatus(seconds);
}

/** Whether the overview is being shown. A status that comes meanwhile waits for the next one. */
let isShowing = false;

/** Shows the last status, each part in a frame of its own. `seconds` are those since the one before, for rates. */
async function showStatus(seconds) {
  if (!status) return;
  showService();
  showEmpty();
  if (view) return view.refresh?.(seconds);
  showRates();
  if (isShowing) return;
  isShowing = true;
  const parts = [
    () => { for (const plot of plots) plot.draw(Date.parse(status.at)); },
    ...showTop(status.top, seconds),
    () => showRules(status.rules),
    () => { for (const row of byId('control-rows').children) fillControl(row, row.control); },
  ];
  try {
    for (const part of parts) {
      await painted();
      if (view) return;
      part();
    }
  } finally {
    isShowing = false;
  }
}

function setLive(className, text) {
  byId('live').className = `live ${className}`;
  setText(byId('live'), text);
}

function showLost() {
  if (!lost) return;
  const { error, retryAt, since } = lost;
  const seconds = retryAt === null ? null : Math.max(0, Math.ceil((retryAt - Date.now()) / 1000));
  setText(byId('stale-title'), `Not connected: ${visible(error.message)}.`);
  const age = since === null ? '' : `The numbers are of ${timeOfDay(since)}, ${duration(Date.now() - since)} ago. `;
  const help = error.help && retryAt !== null ? `${sentence(visible(error.help))} ` : '';
  const next = seconds === null ? '' : seconds > 0 ? `Trying again in ${seconds}${NBSP}s.` : 'Trying again.';
  setText(byId('stale-text'), `${help}${age}${next}`);
  setText(byId('retry'), retryAt === null ? 'Enter a token' : 'Try now');
}

/** Shows a request to try until there was one. */
function showEmpty() {
  const isEmpty = rules?.length > 0 && Object.values(status.requests).every(count => count === 0);
  show(byId('empty'), isEmpty);
  if (!isEmpty) return;
  const rule = rules.find(({ entries }) => entries.every(({ value }) => /^[\w./-]*$/.test(value))) ?? rules[0];
  const words = [rule.domain, descriptorText(rule.entries.map(({ key, value }) => ({ key, value: value || 'x' })))];
  const server = status.grpc_port && status.grpc_port !== 8081 ? `localhost:${status.grpc_port} ` : '';
  setText(byId('try'), `weir hit ${server}-d ${words.map(word => (/^[\w.,:/=@-]+$/.test(word) ? word : `'${visible(word).replaceAll("'", "'\\''")}'`)).join(' ')}`);
}

function start() {
  const { timeZone } = new Intl.DateTimeFormat().resolvedOptions();
  setText(byId('zone'), `Times are those of the zone of this browser, ${timeZone}.`);
  makePlots();
  showView({ isFirst: true });
  live.follow({
    onOpen() {
      startOver();
      if (lost) announce('Connected.');
      lost = null;
      document.body.classList.remove('old');
      show(byId('stale'), false);
      setLive('on', 'Live');
      readAll();
    },
    onAnswer: receiveAnswer,
    onLost(error, retryAt) {
      if (!lost) announce(`Not connected: ${error.message}.`);
      lost = { error, retryAt, since: statusAt };
      document.body.classList.toggle('old', status !== null);
      if (!status) setText(byId('headline'), 'Not connected');
      setLive('off', 'Not live');
      show(byId('stale'), true);
      showLost();
    },
  });
}

setInterval(showLost, 1000);
byId('retry').addEventListener('click', () => live.retry());
byId('forget').addEventListener('click', () => {
  token = null;
  writtenValues.clear();
  show(byId('forget'), false);
  live.restart();
});
document.addEventListener('visibilitychange', () => {
  if (document.hidden) return;
  showStatus(null);
  if (!lost) readHistory(false);
  live.retry();
});
// In a task of its own, after the first paint.
setTimeout(start);
