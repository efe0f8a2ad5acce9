// What the events change on the page.

const MAX_EVENTS = 50;
/** The shortest time between denials that are shown: they can be read. */
const DENIAL_MS = 500;
const BADGES = { added: 'good', loaded: 'good', up: 'good', rejected: 'bad', down: 'bad' };
/** Statuses that the tiles are a mean of. */
const MEAN_OF = 5;
/** The shortest time between statuses to compute rates of. */
const MIN_SECONDS = 0.3;

let status = null;
/** When it was received. */
let statusAt = null;
/** Totals of the last statuses, for rates. */
let totals = [];
let lost = null;

/** Adds to a list of events, the newest first. */
function addTo(list, at, badge, texts) {
  const label = badge && make('span', '', make('span', `badge ${BADGES[badge] ?? ''}`, badge));
  byId(`${list}-rows`).prepend(make('li', '', make('time', '', timeOfDay(at)), label, make('span', '', ...texts)));
  const rows = byId(`${list}-rows`).children;
  if (rows.length > MAX_EVENTS) rows[rows.length - 1].remove();
  show(byId(`no-${list}s`), false);
}

/** Adds to the events of rules, controls and the store. */
function addEvent(badge, ...texts) {
  addTo('change', Date.now(), badge, texts);
}

/** When the last denial was shown, and how many were not since. */
const denials = { shownAt: 0, hidden: 0 };

const handlers = {
  status: receiveStatus,
  controls: () => readControls(),
  denial({ at, domain, entries, rule, limit, control, retry_ms: retry, suppressed }) {
    const now = performance.now();
    denials.hidden += suppressed;
    if (now - denials.shownAt < DENIAL_MS) {
      denials.hidden += 1;
      return;
    }
    const why = control && !limit ? `blocked by ${shortened(control)}` : limit ? `over ${shortened(limit)}` : 'over its limit';
    const notes = [why, rule && shortened(rule), retry === null ? '' : `retry in ${duration(retry)}`, denials.hidden ? `${number(denials.hidden)} not shown before it` : ''];
    Object.assign(denials, { shownAt: now, hidden: 0 });
    addTo('denial', at, null, [keyElement(domain, entries), make('span', 'note', notes.filter(Boolean).join(', '))]);
  },
  reload({ what, ok, error, summary, changes }) {
    if (ok) {
      const lines = changes && changes.list.map(visible).join('\n');
      addEvent('loaded', `Rules: ${counted(summary.rules, 'rule')} in ${counted(summary.domains, 'domain')}.`, lines ? make('pre', '', lines) : null);
    } else {
      addEvent('rejected', `The ${what === 'overlay' ? 'overlay is' : 'rules are'} rejected; those before stay active.`, make('pre', '', error.split('\n').map(visible).join('\n')));
      announce(`The ${what} is rejected.`);
    }
    readRules();
  },
  store({ up, error }) {
    addEvent(up ? 'up' : 'down', up ? 'The store answers.' : `The store does not answer${error ? `: ${shortened(error, 200, 50)}` : ''}.`);
    announce(up ? 'The store answers.' : 'The store does not answer.');
  },
  dropped({ dropped }) {
    addEvent('missed', `${counted(dropped, 'event')} since this page connected: it reads too slowly.`);
    readControls();
  },
};

function receiveStatus(next) {
  const { uptime_ms: uptime, requests } = next;
  if (status && uptime < status.uptime_ms) {
    totals = [];
    ruleRates = new Map();
    addEvent('restarted', 'weir has restarted: counts start over.');
  }
  const before = totals.at(-1);
  const seconds = before ? (uptime - before.uptime) / 1000 : null;
  // The first status may come shortly before the next one: too short for rates.
  if (seconds !== null && seconds < MIN_SECONDS) return;
  const at = Date.parse(next.at);
  totals.push({ at, uptime, requests, controlled: next.controlled });
  if (totals.length > MEAN_OF + 1) totals.shift();
  if (before) addToHistory(before.at, at, ratesSince(before, totals.at(-1)));
  countRules(next.rules.rows, seconds);
  status = next;
  statusAt = Date.now();
  if (!document.hidden) showStatus(seconds);
}

/** Requests a second between two statuses. */
function ratesSince(from, to) {
  const seconds = (to.uptime - from.uptime) / 1000;
  const per = of => Math.max(0, of(to) - of(from)) / seconds;
  return {
    ok: per(it => it.requests.ok),
    over: per(it => it.requests.over_limit),
    invalid: per(it => it.requests.invalid),
    failed: per(it => it.requests.store_error),
    error: per(it => it.requests.invalid + it.requests.store_error),
    shadow: per(it => it.requests.global_shadow_mode),
    blocked: per(it => it.controlled.block),
  };
}

function showStatus(seconds) {
  if (!status) return;
  showRates();
  showService();
  plot.draw(Date.parse(status.at));
  showTop(status.top, seconds);
  showRules(status.rules);
  for (const row of byId('control-rows').children) {
    const control = controls.find(({ id, at }) => row.itemKey === `${id} ${at}`);
    if (control) fillControl(row, control);
  }
}

function showRates() {
  const { controls: { count } } = status;
  const headline = byId('headline');
  if (totals.length < 2) {
    headline.dataset.text = '';
    return setText(headline, 'Connected: the first numbers come in a second');
  }
  const rates = ratesSince(totals[0], totals.at(-1));
  const all = rates.ok + rates.over + rates.error;
  const share = all > 0 ? rates.over / all : 0;
  const text = all === 0 ? 'No requests now' : `${rate(all)} decision${all === 1 ? '' : 's'} a second, `;
  if (all === 0) setText(headline, text);
  else if (headline.dataset.text !== text + percent(share)) {
    headline.replaceChildren(text, share > 0 ? make('strong', '', `${percent(share)} over their limit`) : 'none over its limit');
  }
  headline.dataset.text = all === 0 ? '' : text + percent(share);
  setText(byId('ok-rate'), rate(rates.ok));
  setText(byId('over-rate'), rate(rates.over));
  setText(byId('over-note'), rates.shadow > 0 ? `a second, ${rate(rates.shadow)} more passed by shadow mode` : 'a second');
  byId('over-rate').closest('div').className = rates.over > 0 ? 'over' : '';
  setText(byId('error-rate'), rate(rates.error));
  setText(byId('error-note'), rates.error === 0 ? 'a second' : `a second: ${rate(rates.invalid)} invalid, ${rate(rates.failed)} of the store`);
  byId('error-rate').closest('div').className = rates.error > 0 ? 'over' : '';
  setText(byId('control-count'), number(count));
  setText(byId('control-note'), rates.blocked > 0 ? `${rate(rates.blocked)} blocked a second` : 'active');
}

function showService() {
  const { version, commit, uptime_ms: uptime, serving, not_serving_because: reasons, store, controls: { share_error: shareError, missing } } = status;
  setText(byId('about'), `${location.host}, ${version}`);
  const backends = store.backends;
  const kinds = [...new Set(backends.map(({ kind }) => kind))].join(', ');
  const open = backends.filter(({ breaker }) => breaker && breaker !== 'closed');
  const isDown = !store.connected || store.failing;
  setText(byId('store-state'), !store.connected ? 'down' : store.failing ? 'failing' : open.length ? 'partly down' : `${kinds} up`);
  const note = backends.some(({ breaker }) => breaker) ? (open.length ? `breaker ${open[0].breaker}` : 'breaker closed') : counted(backends.reduce((sum, { keys = 0 }) => sum + keys, 0), 'key');
  setText(byId('store-note'), store.failing && store.on_failure ? `policy ${store.on_failure}` : note);
  byId('store-state').closest('div').className = isDown || open.length ? 'over' : '';
  show(byId('unready'), !serving);
  setText(byId('unready'), serving ? '' : `Not serving: ${reasons.map(visible).join('; ') || 'no reason given'}.`);
  show(byId('unshared'), shareError !== null);
  setText(byId('unshared'), shareError === null ? '' : `Controls are not shared with other replicas: ${shortened(shareError, 200, 50)}.`);
  show(byId('missing'), missing > 0);
  setText(byId('missing'), missing > 0 ? `Blocks may be missing: controls.file was damaged, and at least ${counted(missing, 'change')} could not be read.` : '');
  const facts = [
    ['State', serving ? 'serving' : 'not serving'],
    ['Version', commit && commit !== 'unknown' ? `${version} (${commit})` : version],
    ['Running for', duration(uptime)],
    ...backends.map(backendFact),
  ];
  if (store.on_failure) {
    const counts = Object.entries(store.degraded_charges ?? {}).filter(([, count]) => count > 0);
    const degraded = counts.map(([policy, count]) => `${number(count)} by ${policy}`).join(', ');
    facts.push(['If the store fails', `policy ${store.on_failure}${store.failing ? ', decides now' : ''}${degraded ? `; charges so far: ${degraded}` : ''}`]);
  }
  reconcile(byId('facts'), facts.flatMap(([name, text], i) => [['dt', i, name], ['dd', i, text]]),
    ([tag, i]) => `${tag}${i}`, ([tag]) => make(tag, ''), (element, [, , text]) => setText(element, text));
}

function backendFact({ instance, kind, address, connections, connections_down: down, connections_slow: slow, down_because: why, breaker, keys }) {
  const texts = [kind];
  if (address) texts.push(shortened(address));
  if (connections !== undefined) {
    const unused = [[down, 'down'], [slow, 'slow']].filter(([count]) => count > 0).map(([count, state]) => `${count} ${state}`);
    texts.push(`${counted(connections, 'connection')}${unused.length ? ` (${unused.join(', ')})` : ''}`);
  }
  if (breaker) texts.push(`breaker ${breaker}`);
  if (why) texts.push(shortened(why, 200, 50));
  if (keys !== undefined && keys !== null) texts.push(counted(keys, 'key'));
  return [instance === 'main' || !instance ? 'Store' : `Store ${shortened(instance)}`, texts.join(', ')];
}

/** Reads the rules: their limits, and names for the form. */
async function readRules() {
  let rules;
  try {
    ({ rules } = await call('GET', '/v1/rules'));
  } catch (error) {
    if (error instanceof Rejection) return;
    throw error;
  }
  knownRules = new Map(rules.map(rule => [ruleKey(rule.domain, rule.rule), rule]));
  const options = texts => [...new Set(texts)].sort().slice(0, 500).map(text => new Option('', text));
  byId('domains').replaceChildren(...options(rules.map(rule => rule.domain)));
  byId('entry-keys').replaceChildren(...options(rules.flatMap(rule => rule.entries.map(({ key }) => key))));
  // Rows are made again, with the limits as they are now.
  byId('rule-rows').replaceChildren();
  if (status) showRules(status.rules);
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

events.follow({
  onOpen() {
    // Rates start with what is counted from now on: the time between is not known.
    totals = [];
    for (const list of keyLists) list.counts = new Map();
    ruleRates = new Map();
    if (lost) announce('Connected.');
    lost = null;
    document.body.classList.remove('old');
    show(byId('stale'), false);
    setLive('on', 'Live');
    readControls();
    readRules();
  },
  onEvent(name, data) {
    handlers[name]?.(data);
  },
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

setInterval(showLost, 1000);
byId('retry').addEventListener('click', () => events.retry());
byId('forget').addEventListener('click', () => {
  token = null;
  show(byId('forget'), false);
  events.restart();
});
document.addEventListener('visibilitychange', () => {
  if (!document.hidden) showStatus(null);
});
document.title = `weir ${location.host}`;
