// The operators' web page: the lists of top keys: those with the most hits, the most denials, near a limit, banned, or
// denied but for a shadow mode.

const FEW_KEYS = 8;
const LISTS_MS = 2000;
/** Readings of a small plot. */
const TREND = 30;

/** Each list: how it orders and shows its rows, and whether a row has a button (block, or end the ban). */
const keyLists = ['banned', 'denied', 'would_be_denied', 'near', 'hits'].map(by => ({ by, hasAction: by !== 'would_be_denied', order: new Order(), isLong: false, counts: new Map() }));

/** The chosen window, and whether to count this weir process alone. The status has one minute of all replicas. */
const chosen = { window: '1m', isHere: false };
const isOfStatus = () => chosen.window === '1m' && !chosen.isHere;
/** The query parameters of `/v1/top` for them. */
const chosenLists = () => ({ window: chosen.window, ...(chosen.isHere ? { scope: 'here' } : {}) });
let listsReadAt = 0;

const keyOfRow = ({ domain, rule, entries, limit }) => JSON.stringify([domain, rule, entries, limit]);
const rankOfRow = row => (row.n === undefined ? row.count : row.used / row.n);

/** What a list was counted over. */
function windowText({ window: counted, seconds }) {
  if (counted === undefined || counted === 'start') return `since it started ${duration(seconds * 1000)} ago`;
  if (seconds >= 3600 && seconds < 3660) return 'over the last hour';
  if (seconds >= 60 && seconds < 120) return 'over the last minute';
  // Whole minutes: the text should not change each second.
  return `over the last ${duration((seconds < 60 ? seconds : seconds - (seconds % 60)) * 1000)}`;
}

function replicasText({ scope, replicas }) {
  if (scope !== 'all') return 'this replica';
  return replicas === 1 ? '1 replica' : `${number(replicas)} replicas`;
}

/** Returns functions that show the lists of a status. */
function showTop(top, seconds) {
  show(byId('scope'), top.hits.scope === 'all');
  return isOfStatus() ? listParts(top, seconds) : [];
}

/** Returns functions that show each list. */
function listParts(top, seconds) {
  setText(byId('top-note'), `Of ${replicasText(top.hits)}, ${windowText(top.hits)}. ≤ marks a count that may be too high.`);
  return keyLists.map(list => () => {
    const { rows } = top[list.by] ?? { rows: [] };
    showKeys(list, rows, seconds);
  });
}

/** Reads the lists that were chosen, if the status does not have them. */
async function readLists() {
  if (isOfStatus() || document.hidden || view || lost) return;
  const query = new URLSearchParams({ limit: 20, ...chosenLists() }).toString();
  const answers = await Promise.all(keyLists.map(({ by }) => readQuietly(`/v1/top?by=${by}&${query}`)));
  if (isOfStatus() || answers.includes(null) || query !== new URLSearchParams({ limit: 20, ...chosenLists() }).toString()) return;
  const now = performance.now();
  const lists = Object.fromEntries(keyLists.map(({ by }, i) => [by, answers[i]]));
  for (const showList of listParts(lists, listsReadAt ? (now - listsReadAt) / 1000 : null)) showList();
  listsReadAt = now;
}

function choose(what) {
  Object.assign(chosen, what);
  listsReadAt = 0;
  for (const list of keyLists) list.counts = new Map();
  for (const input of document.querySelectorAll('.windows input')) input.checked = input.value === chosen.window;
  if (view === ruleView) ruleView.read();
  else if (isOfStatus()) showStatus(null);
  else readLists();
}

function showKeys(list, rows, seconds) {
  const { by, order, counts } = list;
  const body = byId(`${by}-rows`);
  show(body.parentElement, rows.length > 0);
  show(byId(`no-${by}`), rows.length === 0);
  if (by === 'banned') show(byId('banned'), rows.length > 0);
  const largest = Math.max(1, ...rows.map(row => row.count));
  const sorted = order.sort(rows, keyOfRow, rankOfRow, isInUse(body));
  const shown = list.isLong ? sorted : sorted.slice(0, FEW_KEYS);
  const more = byId(`more-${by}`);
  show(more, rows.length > FEW_KEYS);
  setText(more, list.isLong ? 'Show fewer' : `Show ${rows.length}`);
  more.onclick = () => {
    list.isLong = !list.isLong;
    showKeys(list, rows, null);
  };
  reconcile(body, shown, keyOfRow, key => makeKey(key, list), (row, key) => {
    const { parts } = row;
    const before = counts.get(keyOfRow(key));
    if (seconds && before !== undefined && key.count >= before) {
      const now = (key.count - before) / seconds;
      row.rate = row.rate === undefined ? now : row.rate * 0.7 + now * 0.3;
      row.trend.push(row.rate);
      if (row.trend.length > TREND) row.trend.shift();
    }
    setText(parts.count, rowText(by, key));
    if (by === 'near') {
      setText(parts.note, `resets in ${duration(key.reset_ms, 1)}`);
      parts.fill.style.width = `${Math.min(100, (100 * key.used) / key.n)}%`;
      row.className = key.used >= key.n ? 'limited' : '';
    } else {
      setText(parts.note, row.rate === undefined ? '' : row.rate < 0.05 ? 'not now' : `${rate(row.rate)} a second`);
      parts.fill.style.width = `${(100 * key.count) / largest}%`;
      drawTrend(parts.trend, row.trend);
      parts.count.title = key.error ? `at least ${number(key.count - key.error)}` : '';
    }
  });
  if (seconds) list.counts = new Map(rows.map(row => [keyOfRow(row), row.count]));
}

/** Draws the hits a second of the last readings over the whole width, as soon as there are some. */
function drawTrend(path, trend) {
  const top = Math.max(0.1, ...trend);
  const step = (TREND - 1) / (trend.length - 1);
  const points = trend.map((value, i) => `${(i * step).toFixed(1)} ${(19 - (18 * value) / top).toFixed(1)}`);
  path.setAttribute('d', points.length > 4 ? `M${points.join('L')}` : '');
}

const countText = ({ count, error }) => `${error ? '≤' : ''}${number(count)}`;

/** What a list shows of a key. */
function rowText(by, key) {
  if (by === 'near') return `${number(key.used)} of ${number(key.n)}`;
  return by === 'banned' ? `in ${duration(key.banned_ms, 1)}` : countText(key);
}

function makeKey(key, { by, hasAction }) {
  const row = make('tr', '');
  const { domain, entries, rule, limit, cut } = key;
  const fill = make('i', '');
  const note = [shortened(domain, 40, 10), limit ? `limit ${shortened(limit)}` : '', cut ? 'shown in part' : ''].filter(Boolean);
  const head = rowHead(keyLink(domain, key, ''), make('span', 'note', note.join(', ')), make('span', 'bar', fill));
  head.title = `${visible(keyText(domain, entries))}${rule ? `\nrule ${visible(rule)}` : ''}`;
  row.parts = { fill, count: make('span', ''), note: make('span', 'note') };
  row.trend = [];
  row.append(head);
  if (by !== 'near') {
    row.parts.trend = svg('path', { class: 'line' });
    const picture = svg('svg', { viewBox: `0 0 ${TREND - 1} 20`, preserveAspectRatio: 'none', 'aria-hidden': 'true' });
    picture.append(row.parts.trend);
    row.append(make('td', 'trend', picture));
  }
  row.append(make('td', 'n', row.parts.count, row.parts.note));
  if (hasAction) {
    const [text, act] = by === 'banned' ? ['End the ban', () => reset.openRow(key)] : ['Block', () => editor.open(draftOfKey(key))];
    const action = button(text, 'quiet', act, `${text} ${by} ${keyOfRow(key)}`);
    action.setAttribute('aria-label', `${text}${by === 'banned' ? ' of' : ''} ${visible(keyText(domain, entries))}`);
    row.append(make('td', 'act', action));
  }
  return row;
}

/** What the form starts with for a key. Values that are hashes or cut are not those of requests. */
function draftOfKey({ domain, entries, cut }) {
  const warnings = new Set();
  const known = revealValues(entries).map(entry => {
    const { key, value } = entry;
    if (isHidden(entry)) {
      warnings.add('Write the value that the list shows as a hash.');
      return { key, value: '' };
    }
    if (cut && value.endsWith('…')) {
      warnings.add('A value was cut: * stands for the rest.');
      return { ...entry, value: `${value.slice(0, -1)}*` };
    }
    return entry;
  });
  if (!cut && entries.some(({ value }) => value.includes('*'))) {
    warnings.add('The client sent a *, which stands for any text here: this matches more than the key.');
  }
  if (cut && !warnings.size) warnings.add('The key was cut: entries may be missing.');
  // A network that a client sent is this key; the form offers the addresses in it.
  return { action: 'block', domain, entries: known, text: true, warning: [...warnings].join(' ') };
}

setInterval(readLists, LISTS_MS);
for (const windows of document.querySelectorAll('.windows')) windows.addEventListener('change', event => choose({ window: event.target.value }));
byId('scope').addEventListener('change', event => choose({ isHere: event.target.value === 'here' }));
