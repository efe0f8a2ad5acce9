// The operators' web page: the active rules, the rates of each, and the table of those with the most hits.

/** How often rows change their order. */
const ORDER_MS = 5000;
/** Rules in the overview. */
const BUSY_RULES = 10;
/** Seconds in the small plot of a row: a minute. */
const SMALL_SECONDS = 60;

/** The active rules, also by domain and path; null: not read yet. */
let rules = null;
let knownRules = new Map();
/** What was counted of a rule: its totals, its rates, and its last minute. */
let ruleRates = new Map();
/** Whether the status has all rules. */
let areRatesWhole = false;

const ruleKey = (domain, rule) => JSON.stringify([domain, rule]);
const keyOfRule = ({ domain, rule }) => ruleKey(domain, rule);

/** Counts the hits of rules since the status before, if there is one. */
function countRules({ rows, omitted }, seconds) {
  const counted = new Map();
  for (const { domain, rule, hits, over_limit: over, shadow_mode: shadow } of rows) {
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
    counted.set(key, { hits, over, shadow, recent, minute });
  }
  ruleRates = counted;
  areRatesWhole = omitted === 0;
}

/** The numbers of a rule: hits a second, their share over the limit, and hits of the last hour. Null: not known. */
function ruleNumbers(rule) {
  const key = keyOfRule(rule);
  const rates = ruleRates.get(key);
  const recent = rates ? rates.recent : areRatesWhole ? { hits: 0, over: 0 } : null;
  const hour = past.rules.get(key);
  const sum = hour ? hour.within_limit + hour.over_limit + hour.would_be_over_limit : past.areAllRules ? 0 : null;
  return { hits: recent?.hits ?? null, over: recent && (recent.hits > 0 ? recent.over / recent.hits : 0), sum };
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

/** Shows the rules with the most hits. */
function showRules({ rows, other }) {
  const rankOf = row => (ruleRates.get(keyOfRule(row))?.recent?.hits ?? 0) + row.hits / 1e12;
  const hit = rows.filter(row => row.hits > 0);
  const table = byId('rule-table');
  show(table, hit.length > 0);
  show(byId('no-rules'), hit.length === 0);
  reconcile(byId('rule-rows'), ruleOrder.sort(hit, keyOfRule, rankOf, isInUse(table)).slice(0, BUSY_RULES), keyOfRule, makeRule, fillRule);
  setText(byId('all-rules'), rules ? `All ${counted(rules.length, 'rule')}` : 'All rules');
  show(byId('more-rules'), other.hits > 0);
  setText(byId('more-rules'), `${counted(other.hits, 'hit')} of series beyond metrics.max_series.`);
}

function limitsText({ unlimited, limits }) {
  return unlimited ? 'unlimited' : limits.map(limitText).join('; ') || 'no limit';
}

function modeBadges({ shadow_mode: shadow, quota_mode: quota }) {
  return [shadow && 'shadow', quota && 'quota'].filter(Boolean).flatMap(mode => [' ', make('span', 'badge', mode)]);
}

const placeOfRule = ({ file, line }) => (file ? `${fileName(file)}${line === null ? '' : `:${line}`}` : '');

function makeRule({ domain, rule }) {
  const known = knownRules.get(ruleKey(domain, rule));
  const row = make('tr', '');
  const name = rule === null ? make('span', '', 'limits sent with requests') : known ? link(ruleAddress(domain, rule), code(rule)) : code(rule);
  const head = rowHead(name, make('span', 'note', make('code', '', shortened(domain))));
  const limit = make('td', '');
  if (known) limit.append(limitsText(known), ...modeBadges(known), make('span', 'note', placeOfRule(known)));
  row.parts = {};
  const cell = (name, label) => {
    row.parts[name] = make('span', '');
    return labelled('n', label, row.parts[name]);
  };
  const numbers = [cell('rate', 'Hits a second'), cell('over', 'Over limit'), cell('sum', 'Last hour')];
  const picture = svg('svg', { viewBox: '0 0 60 20', preserveAspectRatio: 'none', 'aria-hidden': 'true' });
  row.parts.hits = svg('path', { class: 'passed' });
  row.parts.denied = svg('path', { class: 'denied' });
  picture.append(row.parts.hits, row.parts.denied, svg('path', { class: 'grid', d: 'M0 20H60' }));
  row.append(head, limit, ...numbers, make('td', 'small', picture));
  return row;
}

function fillRule(row, rule) {
  const rates = ruleRates.get(keyOfRule(rule));
  const { hits, over, sum } = ruleNumbers(rule);
  const { parts } = row;
  setText(parts.rate, hits === null ? '–' : rate(hits));
  setText(parts.over, over === null ? '–' : percent(over));
  const isSoft = knownRules.get(keyOfRule(rule))?.shadow_mode;
  parts.over.className = over > 0 && !isSoft ? 'denied-text' : '';
  setText(parts.sum, sum === null ? '–' : number(sum));
  if (rates) parts.sum.title = `${number(rates.hits)} hits in all, ${number(rates.over)} over limit${rates.shadow ? `, ${number(rates.shadow)} of them passed by shadow mode` : ''}`;
  const minute = rates?.minute ?? [];
  const top = Math.max(1, ...minute.map(second => second.hits));
  const path = part => minute.map((second, i) => {
    const height = ((20 * second[part]) / top).toFixed(2);
    return height > 0 ? `M${SMALL_SECONDS - minute.length + i} 20v-${height}h1v${height}z` : '';
  }).join('');
  parts.hits.setAttribute('d', path('hits'));
  parts.denied.setAttribute('d', path('over'));
  parts.denied.setAttribute('class', isSoft ? 'would' : 'denied');
}

/** Resolves when the rules are read for the first time. */
let [rulesAreRead, setRulesRead] = [null, null];
rulesAreRead = new Promise(resolve => { setRulesRead = resolve; });

/** Reads the rules: their limits, and names for the form. */
async function readRules() {
  try {
    ({ rules } = await call('GET', '/v1/rules'));
  } catch (error) {
    if (error instanceof Rejection) return;
    throw error;
  }
  knownRules = new Map(rules.map(rule => [keyOfRule(rule), rule]));
  const options = texts => [...new Set(texts)].sort().slice(0, 500).map(text => new Option('', text));
  byId('domains').replaceChildren(...options(rules.map(rule => rule.domain)));
  byId('entry-keys').replaceChildren(...options(rules.flatMap(rule => rule.entries.map(({ key }) => key))));
  setRulesRead();
  // Rows are made again, with the limits as they are now.
  for (const list of ['rule', 'all-rule']) byId(`${list}-rows`).replaceChildren();
  if (status && !view) showRules(status.rules);
  view?.refresh?.(null);
}

const domainNames = () => [...new Set((rules ?? []).map(({ domain }) => domain))].sort();
