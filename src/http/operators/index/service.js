// The operators' web page: the headline, the rates of the last seconds, and the section about weir and its store.

/** The last status of `/v1/status`, and when it was received. */
let status = null;
let statusAt = null;
/** Totals of the last statuses, for rates. */
let totals = [];
/** Why there is no connection, and since when; null: there is one. */
let lost = null;

/** What a status has counted. */
function countsOf({ requests, controlled, store }) {
  const { ok, over_limit: over, invalid, store_error: failed, global_shadow_mode: global, rule_shadow_mode: ofRules } = requests;
  const degraded = Object.values(store.degraded_charges ?? {}).reduce((sum, count) => sum + count, 0);
  return { ok, over, invalid, failed, error: invalid + failed, shadow: global + ofRules, blocked: controlled.block, charges: store.charges ?? 0, degraded };
}

/** What was counted a second between two statuses. */
function ratesSince(from, to) {
  const seconds = (to.uptime - from.uptime) / 1000;
  return Object.fromEntries(Object.entries(to.counts).map(([name, count]) => [name, Math.max(0, count - from.counts[name]) / seconds]));
}

/** The headline: its start, its end, and the CSS class of the end. */
function headlineOf({ ok, over, error, failed, charges, degraded }) {
  const all = ok + over + error;
  if (problems.some(({ kind }) => kind === 'no_rules')) return ['Every request fails: ', 'no rules are loaded', 'critical'];
  const problem = problems.find(({ kind }) => kind === 'store');
  const title = problem ? problemTexts(problem).title : '';
  // Else it has the numbers of the last seconds.
  const cause = /^\d/.test(title) ? '' : title;
  if (all === 0) return cause ? ['No requests now: ', cause, problem.severity] : ['No requests now', '', ''];
  const share = failed > 0 ? failed / all : charges > 0 ? degraded / charges : 0;
  if ((problem || share >= 0.01) && (share > 0 || cause)) {
    const what = failed > 0 ? 'fail' : `answered by policy ${status.store.on_failure}`;
    const severity = problem?.severity ?? 'critical';
    return [`${rate(all)} a second, `, `${percent(share)} ${what}${cause && `: ${cause}`}`, severity];
  }
  return [`${rate(all)} decision${all === 1 ? '' : 's'} a second, `, over > 0 ? `${percent(over / all)} over their limit` : 'none over its limit', over > 0 ? 'over' : ''];
}

function showRates() {
  const { controls: { count } } = status;
  const headline = byId('headline');
  if (totals.length < 2) return setText(headline, 'Connected: the first numbers come in a second');
  const rates = ratesSince(totals[0], totals.at(-1));
  const [text, end, className] = headlineOf(rates);
  if (headline.textContent !== text + end) headline.replaceChildren(text, className ? make('strong', '', end) : end);
  headline.className = className;
  setText(byId('ok-rate'), rate(rates.ok));
  setText(byId('over-rate'), rate(rates.over));
  setText(byId('over-note'), rates.shadow > 0 ? `a second, ${rate(rates.shadow)} more in shadow mode` : 'a second');
  byId('over-rate').closest('div').className = rates.over > 0 ? 'over' : '';
  setText(byId('error-rate'), rate(rates.error));
  setText(byId('error-note'), rates.error === 0 ? 'a second' : `a second: ${rate(rates.invalid)} invalid, ${rate(rates.failed)} of the store`);
  byId('error-rate').closest('div').className = rates.error > 0 ? 'over' : '';
  setText(byId('control-count'), number(count));
  setText(byId('control-note'), rates.blocked > 0 ? `${rate(rates.blocked)} blocked a second` : 'active');
}

function showService() {
  const { version, commit, uptime_ms: uptime, serving, not_serving_because: reasons, store } = status;
  const { scope, replicas } = status.top.hits;
  const which = scope === 'all' ? `one of ${counted(replicas, 'replica')}` : '';
  setText(byId('about'), [`replica ${shortened(status.replica, 40, 10)}`, which, location.host, `weir ${version}`, `times in ${zone()}`].filter(Boolean).join(', '));
  const backends = store.backends;
  const kinds = [...new Set(backends.map(({ kind }) => kind))].join(', ');
  const open = backends.filter(({ breaker }) => breaker && breaker !== 'closed');
  const isDown = !store.connected || store.failing;
  const [bad, partly] = open.some(({ connections_down: down }) => down > 0) ? ['down', 'partly down'] : ['too slow', 'partly too slow'];
  setText(byId('store-state'), !store.connected ? open.length ? bad : 'down' : store.failing ? 'failing' : open.length ? partly : 'up');
  const note = backends.some(({ breaker }) => breaker) ? (open.length ? `breaker ${open[0].breaker}` : 'breaker closed') : counted(backends.reduce((sum, { keys = 0 }) => sum + keys, 0), 'key');
  setText(byId('store-note'), `${kinds}, ${store.failing && store.on_failure ? `policy ${store.on_failure}` : note}`);
  byId('store-state').closest('div').className = isDown || open.length ? 'over' : '';
  show(byId('unready'), !serving);
  setText(byId('unready'), serving ? '' : `Not serving: ${reasons.map(visible).join('; ') || 'no reason given'}.`);
  const facts = [
    ['State', stateText(serving)],
    ['Version', commit && commit !== 'unknown' ? `${version} (${commit})` : version],
    ['Running for', duration(uptime)],
    ['Replica', `${shortened(status.replica)}${which && `, ${which}`}${!which && backends.some(({ address }) => address) ? '; others are listed if they share their lists of keys (top.share)' : ''}`],
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
