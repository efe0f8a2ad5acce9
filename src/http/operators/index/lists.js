// The rules with hits, and the top keys.

/** How often rows change their order. */
const ORDER_MS = 5000;
const FEW_KEYS = 8;
/** Points of a small plot: a minute. */
const SMALL_SECONDS = 60;

/** The active rules by domain and path. */
let knownRules = new Map();
/** What was counted of a rule: its rates, and its last minute. */
let ruleRates = new Map();

const ruleKey = (domain, rule) => JSON.stringify([domain, rule]);

function svg(tag, attributes) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

/** Counts the hits of rules since the status before, if there is one. */
function countRules(rows, seconds) {
  const counted = new Map();
  for (const { domain, rule, hits, over_limit: over } of rows) {
    const key = ruleKey(domain, rule);
    const old = ruleRates.get(key);
    const minute = old?.minute ?? [];
    let recent = old?.recent ?? null;
    if (old && seconds && hits >= old.hits && over >= old.over) {
      const now = { hits: (hits - old.hits) / seconds, over: (over - old.over) / seconds };
      // A mean in which a status counts less the older it is: numbers that can be read.
      const weight = recent ? 0.3 : 1;
      recent = {
        hits: (recent?.hits ?? 0) * (1 - weight) + now.hits * weight,
        over: (recent?.over ?? 0) * (1 - weight) + now.over * weight,
      };
      if (recent.hits < 0.01) recent = { hits: 0, over: 0 };
      minute.push(now);
      if (minute.length > SMALL_SECONDS) minute.shift();
    }
    counted.set(key, { hits, over, recent, minute });
  }
  ruleRates = counted;
}

/** Sorts by rank, but at most every few seconds, and never under someone's pointer. */
class Order {
  ranks = new Map();
  sortedAt = 0;
  sort(items, keyOf, rankOf, isHeld) {
    if (!isHeld && performance.now() - this.sortedAt > ORDER_MS) {
      this.sortedAt = performance.now();
      const sorted = [...items].sort((a, b) => rankOf(b) - rankOf(a));
      this.ranks = new Map(sorted.map((item, i) => [keyOf(item), i]));
    }
    const rank = item => this.ranks.get(keyOf(item)) ?? Infinity;
    return [...items].sort((a, b) => rank(a) - rank(b) || rankOf(b) - rankOf(a));
  }
}

const ruleOrder = new Order();

function showRules({ rows, omitted, other }) {
  const keyOf = ({ domain, rule }) => ruleKey(domain, rule);
  const rankOf = row => (ruleRates.get(keyOf(row))?.recent?.hits ?? 0) + row.hits / 1e12;
  const hit = rows.filter(row => row.hits > 0);
  const table = byId('rule-table');
  show(table, hit.length > 0);
  show(byId('no-rules'), hit.length === 0);
  reconcile(byId('rule-rows'), ruleOrder.sort(hit, keyOf, rankOf, isInUse(table)), keyOf, makeRule, fillRule);
  const notes = [];
  if (omitted) notes.push(`${counted(omitted, 'more rule')} with fewer hits.`);
  if (other.hits) notes.push(`${counted(other.hits, 'hit')} of series beyond metrics.max_series.`);
  show(byId('more-rules'), notes.length > 0);
  setText(byId('more-rules'), notes.join(' '));
}

function makeRule({ domain, rule }) {
  const known = knownRules.get(ruleKey(domain, rule));
  const row = make('tr', '');
  const head = make('th', 'key', rule === null ? make('span', '', 'limits sent with requests') : code(rule), make('span', 'note', make('code', '', shortened(domain))));
  head.scope = 'row';
  const limit = make('td', '');
  if (known) {
    const limits = known.unlimited ? ['unlimited'] : known.limits.map(limitText);
    limit.append(limits.join('; '));
    if (known.shadow_mode) limit.append(' ', make('span', 'badge', 'shadow'));
    if (known.quota_mode) limit.append(' ', make('span', 'badge', 'quota'));
    limit.append(make('span', 'note', `${shortened(known.file.split('/').pop())}:${known.line}`));
  }
  const cell = label => {
    const td = make('td', 'n');
    td.dataset.label = label;
    return td;
  };
  row.parts = { rate: make('span', ''), over: make('span', ''), total: make('span', '') };
  const [rates, over, total] = [cell('Hits a second'), cell('Over limit'), cell('Hits in all')];
  rates.append(row.parts.rate);
  over.append(row.parts.over);
  total.append(row.parts.total);
  const small = make('td', 'small');
  const picture = svg('svg', { viewBox: '0 0 60 20', preserveAspectRatio: 'none', 'aria-hidden': 'true' });
  row.parts.hits = svg('path', { class: 'passed' });
  row.parts.denied = svg('path', { class: 'denied' });
  picture.append(row.parts.hits, row.parts.denied, svg('path', { class: 'grid', d: 'M0 20H60' }));
  small.append(picture);
  row.append(head, limit, rates, over, total, small);
  return row;
}

function fillRule(row, { domain, rule, hits, over_limit: over, shadow_mode: shadow }) {
  const { recent, minute } = ruleRates.get(ruleKey(domain, rule)) ?? { recent: null, minute: [] };
  const { parts } = row;
  setText(parts.rate, recent ? rate(recent.hits) : '–');
  const share = recent && recent.hits > 0 ? recent.over / recent.hits : 0;
  setText(parts.over, recent ? percent(share) : '–');
  parts.over.className = share > 0 && !shadow ? 'denied-text' : '';
  setText(parts.total, number(hits));
  parts.total.title = `${number(over)} over limit${shadow ? `, ${number(shadow)} of them passed by shadow mode` : ''}`;
  const top = Math.max(1, ...minute.map(second => second.hits));
  const path = of => minute.map((second, i) => {
    const height = ((20 * second[of]) / top).toFixed(2);
    return height > 0 ? `M${SMALL_SECONDS - minute.length + i} 20v-${height}h1v${height}z` : '';
  }).join('');
  parts.hits.setAttribute('d', path('hits'));
  parts.denied.setAttribute('d', path('over'));
}

/** The lists of top keys: how each orders and shows its rows. */
const keyLists = ['denied', 'near', 'hits'].map(by => ({ by, order: new Order(), isLong: false, counts: new Map() }));

function showTop(top, seconds) {
  const note = !top ? 'top.entries is 0: keys are not counted.'
    : `Of this replica, since it started ${duration(top.hits.seconds * 1000)} ago. ≤ marks a count that may be too high.`;
  setText(byId('top-note'), note);
  if (top) for (const list of keyLists) showKeys(list, top[list.by], seconds);
}

function showKeys(list, { rows }, seconds) {
  const { by, order, counts } = list;
  const keyOf = row => JSON.stringify([row.domain, row.entries, row.limit]);
  const rankOf = row => (by === 'near' ? row.used / row.n : row.count);
  const body = byId(`${by}-rows`);
  show(body.parentElement, rows.length > 0);
  show(byId(`no-${by}`), rows.length === 0);
  const largest = Math.max(1, ...rows.map(row => row.count));
  const sorted = order.sort(rows, keyOf, rankOf, isInUse(body));
  const shown = list.isLong ? sorted : sorted.slice(0, FEW_KEYS);
  const more = byId(`more-${by}`);
  show(more, rows.length > FEW_KEYS);
  setText(more, list.isLong ? 'Show fewer' : `Show ${rows.length}`);
  more.onclick = () => {
    list.isLong = !list.isLong;
    showKeys(list, { rows }, null);
  };
  reconcile(body, shown, keyOf, makeKey, (row, key) => {
    const { parts } = row;
    const before = counts.get(keyOf(key));
    const isKnown = seconds && before !== undefined && key.count >= before;
    if (isKnown) {
      const now = (key.count - before) / seconds;
      row.rate = row.rate === undefined ? now : row.rate * 0.7 + now * 0.3;
    }
    if (by === 'near') {
      setText(parts.count, `${number(key.used)} of ${number(key.n)}`);
      setText(parts.note, `resets in ${duration(key.reset_ms, 1)}`);
      parts.fill.style.width = `${Math.min(100, (100 * key.used) / key.n)}%`;
      row.className = key.used >= key.n ? 'limited' : '';
    } else {
      setText(parts.count, `${key.error ? '≤' : ''}${number(key.count)}`);
      setText(parts.note, row.rate === undefined ? '' : row.rate < 0.05 ? 'not now' : `${rate(row.rate)} a second`);
      parts.fill.style.width = `${(100 * key.count) / largest}%`;
      parts.count.title = key.error ? `at least ${number(key.count - key.error)}` : '';
    }
  });
  if (seconds) list.counts = new Map(rows.map(row => [keyOf(row), row.count]));
}

function makeKey(key) {
  const row = make('tr', '');
  const { domain, entries, rule, limit, cut } = key;
  const bar = make('span', 'bar');
  const fill = make('i', '');
  bar.append(fill);
  const note = [shortened(domain, 40, 10), limit ? `limit ${shortened(limit)}` : '', cut ? 'shown in part' : ''].filter(Boolean);
  const head = make('th', 'key', keyElement('', entries), make('span', 'note', note.join(', ')), bar);
  head.scope = 'row';
  head.title = `${visible(keyText(domain, entries))}${rule ? `\nrule ${visible(rule)}` : ''}`;
  const block = button('Block', 'quiet', () => editor.open(draftOfKey(key)));
  block.setAttribute('aria-label', `Block ${visible(keyText(domain, entries))}`);
  row.parts = { fill, count: make('span', ''), note: make('span', 'note') };
  row.append(head, make('td', 'n', row.parts.count, row.parts.note), make('td', 'act', block));
  return row;
}

/** What the form starts with for a key. Values that are hashes or cut are not those of requests. */
function draftOfKey({ domain, entries, cut }) {
  const warnings = new Set();
  const known = entries.map(({ key, value }) => {
    if (/^hash:[0-9a-f]+$/.test(value)) {
      warnings.add('Write the value that the list shows as a hash.');
      return { key, value: '' };
    }
    if (cut && value.endsWith('…')) {
      warnings.add('A value was cut: * stands for the rest.');
      return { key, value: `${value.slice(0, -1)}*` };
    }
    return { key, value };
  });
  if (!cut && entries.some(({ value }) => value.includes('*'))) {
    warnings.add('The client sent a *, which stands for any text here: this matches more than the key.');
  }
  if (cut && !warnings.size) warnings.add('The key was cut: entries may be missing.');
  return { action: 'block', domain, entries: known, warning: [...warnings].join(' ') };
}
