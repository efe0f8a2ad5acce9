// The lists of top keys.

const FEW_KEYS = 8;
const SCOPE_MS = 2000;

/** Each list: how it orders and shows its rows. What would be denied is not denied: nothing to block. */
const keyLists = ['denied', 'would_be_denied', 'near', 'hits'].map(by => ({ by, hasBlock: by !== 'would_be_denied', order: new Order(), isLong: false, counts: new Map() }));

/** The lists of this replica alone; null: those of all that share theirs are shown. */
let hereLists = null;
let hereReadAt = 0;

const keyOfRow = ({ domain, entries, limit }) => JSON.stringify([domain, entries, limit]);
const rankOfRow = row => (row.n === undefined ? row.count : row.used / row.n);

/** What a list was counted over. */
function windowText({ window: counted, seconds }) {
  if (counted === undefined || counted === 'start') return `since it started ${duration(seconds * 1000)} ago`;
  if (seconds >= 3600 && seconds < 3660) return 'over the last hour';
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
  // The lists of this replica are read on their own.
  return hereLists === null ? listParts(top, seconds) : [];
}

/** Returns functions that show each list. */
function listParts(top, seconds) {
  setText(byId('top-note'), `Of ${replicasText(top.hits)}, ${windowText(top.hits)}. ≤ marks a count that may be too high.`);
  return keyLists.map(list => () => {
    const { rows } = top[list.by] ?? { rows: [] };
    showKeys(list, rows, seconds);
  });
}

/** Reads the lists of this replica alone, for as long as they are wanted. */
async function readHere() {
  if (hereLists === null || document.hidden || view || lost) return;
  const answers = await Promise.all(keyLists.map(({ by }) => readQuietly(`/v1/top?by=${by}&limit=20&scope=here`)));
  if (hereLists === null || answers.includes(null)) return;
  const now = performance.now();
  hereLists = Object.fromEntries(keyLists.map(({ by }, i) => [by, answers[i]]));
  for (const showList of listParts(hereLists, hereReadAt ? (now - hereReadAt) / 1000 : null)) showList();
  hereReadAt = now;
}

function chooseScope(isHere) {
  hereLists = isHere ? {} : null;
  hereReadAt = 0;
  for (const list of keyLists) list.counts = new Map();
  if (isHere) readHere();
  else showStatus(null);
}

function showKeys(list, rows, seconds) {
  const { by, order, counts } = list;
  const body = byId(`${by}-rows`);
  show(body.parentElement, rows.length > 0);
  show(byId(`no-${by}`), rows.length === 0);
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
    }
    if (by === 'near') {
      setText(parts.count, `${number(key.used)} of ${number(key.n)}`);
      setText(parts.note, `resets in ${duration(key.reset_ms, 1)}`);
      parts.fill.style.width = `${Math.min(100, (100 * key.used) / key.n)}%`;
      row.className = key.used >= key.n ? 'limited' : '';
    } else {
      setText(parts.count, countText(key));
      setText(parts.note, row.rate === undefined ? '' : row.rate < 0.05 ? 'not now' : `${rate(row.rate)} a second`);
      parts.fill.style.width = `${(100 * key.count) / largest}%`;
      parts.count.title = key.error ? `at least ${number(key.count - key.error)}` : '';
    }
  });
  if (seconds) list.counts = new Map(rows.map(row => [keyOfRow(row), row.count]));
}

const countText = ({ count, error }) => `${error ? '≤' : ''}${number(count)}`;

function makeKey(key, { by, hasBlock }) {
  const row = make('tr', '');
  const { domain, entries, rule, limit, cut } = key;
  const bar = make('span', 'bar');
  const fill = make('i', '');
  bar.append(fill);
  const note = [shortened(domain, 40, 10), limit ? `limit ${shortened(limit)}` : '', cut ? 'shown in part' : ''].filter(Boolean);
  const head = make('th', 'key', keyLink(domain, key, ''), make('span', 'note', note.join(', ')), bar);
  head.scope = 'row';
  head.title = `${visible(keyText(domain, entries))}${rule ? `\nrule ${visible(rule)}` : ''}`;
  row.parts = { fill, count: make('span', ''), note: make('span', 'note') };
  row.append(head, make('td', 'n', row.parts.count, row.parts.note));
  if (hasBlock) {
    const block = button('Block', 'quiet', () => editor.open(draftOfKey(key)), `block ${by} ${keyOfRow(key)}`);
    block.setAttribute('aria-label', `Block ${visible(keyText(domain, entries))}`);
    row.append(make('td', 'act', block));
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
      return { key, value: `${value.slice(0, -1)}*` };
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

setInterval(readHere, SCOPE_MS);
for (const input of document.querySelectorAll('input[name=scope]')) input.addEventListener('change', () => chooseScope(input.value === 'here'));
