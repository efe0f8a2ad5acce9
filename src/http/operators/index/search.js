// The operators' web page: the search field above every view, and the view `#/search` of what it finds.

/** Rows of each kind that are shown. */
const MAX_FOUND = 50;
const MAX_SUGGESTED = 8;
/** Keys of each list that are searched. */
const MAX_KEYS = 10000;

/** Reads a text as a key: `shop user=ann`, or `user=ann` with the domains whose rules have such entries. Null: it is none. */
function readKey(text) {
  const named = domainNames().filter(domain => text.startsWith(`${domain} `)).sort((a, b) => b.length - a.length);
  for (const domain of named) {
    const entries = readDescriptor(text.slice(domain.length + 1).trim());
    if (entries) return { entries, domains: [domain] };
  }
  const entries = readDescriptor(text);
  if (!entries) return null;
  const keys = entries.map(({ key }) => key).join('\n');
  const having = rules.filter(rule => rule.entries.map(({ key }) => key).join('\n') === keys).map(({ domain }) => domain);
  return { entries, domains: [...new Set(having)].sort() };
}

/** How many searches were started: a later one ends those that wait. */
let searches = 0;

/** Opens the key that a text is, else what it finds. */
async function search(written) {
  if (!written) return;
  searches += 1;
  const turn = searches;
  // At the start: names of domains decide.
  if (!rules) await Promise.race([rulesAreRead, new Promise(resolve => setTimeout(resolve, 2000))]);
  if (turn !== searches) return;
  const key = rules && readKey(written);
  if (key?.domains.length === 1) return go(keyAddress(key.domains[0], key.entries));
  searchView.text = written;
  go(address('search'));
}

const searchView = {
  /** What was written: it is in no address. */
  text: '',

  open() {
    byId('query').value = this.text;
    this.find();
  },

  async find() {
    const { text } = this;
    const isStale = () => view !== this || this.text !== text;
    setText(byId('search-count'), 'Searching.');
    for (const kind of ['open', 'domain', 'rule', 'control', 'key', 'denial']) show(byId(`found-${kind}s`), false);
    if (!text) return setText(byId('search-count'), 'Write what to find into the field above.');
    await rulesAreRead;
    if (isStale()) return;
    this.showKeyChoice(text);
    const words = wordsOf(text);
    const domains = words.length ? domainNames().filter(domain => hasWords(domain.toLowerCase(), words)) : [];
    this.list('domain', domains, domain => make('li', '', link(address('rules', { domain }), code(domain))));
    const counts = [[domains.length, 'domain']];
    const foundRules = await filterInSlices(rules, rule => hasWords(textOfRule(rule), words), isStale);
    this.list('rule', foundRules, rule => make('li', '', link(ruleAddress(rule.domain, rule.rule), make('code', '', `${shortened(rule.domain, 40, 10)}.`, make('b', '', shortened(rule.rule)))), make('span', 'note', ` ${limitsText(rule)}`), ...modeBadges(rule)), 10);
    byId('found-all-rules').href = address('rules');
    byId('found-all-rules').onclick = () => { allRules.kept = { hash: address('rules'), text }; };
    setText(byId('found-all-rules'), `All ${counted(foundRules.length, 'rule')}`);
    counts.push([foundRules.length, 'rule']);
    const textOf = ({ id, action, domain, entries, reason, by }) => [id, action, domain, descriptorText(entries), reason, by].join(' ').toLowerCase();
    const foundControls = await filterInSlices(controls, control => hasWords(textOf(control), words), isStale);
    if (isStale()) return;
    show(byId('found-controls'), foundControls.length > 0);
    listControls(byId('found-control-rows'), foundControls.slice(0, MAX_FOUND));
    this.note('control', foundControls.length);
    counts.push([foundControls.length, 'control']);
    const foundDenials = denials.rows.filter(row => hasWords(this.textOfKey(row), words));
    this.list('denial', foundDenials, row => make('li', '', link(keyAddress(row.domain, row.entries, row.cut), keyElement(row.domain, row.entries)), make('span', 'note', ` ${dayAndTime(row.at)}`)));
    counts.push([foundDenials.length, 'denial']);
    const keys = await this.findKeys(words, isStale);
    if (isStale()) return;
    this.list('key', keys, ({ key, notes }) => make('li', '', link(keyAddress(key.domain, key.entries, key.cut), keyElement(key.domain, key.entries)), make('span', 'note', ` ${notes.join(', ')}`)));
    counts.splice(3, 0, [keys.length, 'key']);
    const texts = counts.filter(([count]) => count).map(([count, noun]) => counted(count, noun));
    setText(byId('search-count'), texts.length ? `${texts.join(', ')}.` : readKey(text) ? 'No list has this text.' : 'Nothing is found. A whole key, such as key=value,key2=value2, opens that key.');
  },

  textOfKey: ({ domain, entries, rule }) => `${domain} ${descriptorText(entries)} ${rule ?? ''}`.toLowerCase(),

  /** Finds keys in all lists, those with the largest numbers first. */
  async findKeys(words, isStale) {
    const found = new Map();
    const scope = chosen.isHere ? '&scope=here' : '';
    for (const { by } of keyLists) {
      const answer = await readQuietly(`/v1/top?by=${by}&limit=${MAX_KEYS}${scope}`);
      await pause();
      const rows = await filterInSlices(answer?.rows ?? [], row => hasWords(this.textOfKey(row), words), isStale);
      if (isStale()) return [];
      for (const key of rows) {
        const name = keyOfRow({ ...key, rule: undefined, limit: undefined });
        if (!found.has(name)) found.set(name, { key, notes: [], rank: 0 });
        const entry = found.get(name);
        entry.rank = Math.max(entry.rank, key.count);
        entry.notes.push({ near: `${rowText(by, key)} used`, banned: `ban ends ${rowText(by, key)}` }[by] ?? `${countText(key)} ${LIST_TEXTS[by][0]}`);
      }
      await pause();
    }
    return [...found.values()].sort((a, b) => b.rank - a.rank);
  },

  /** Offers to open a text as a key of one of several domains. */
  showKeyChoice(text) {
    const key = readKey(text);
    show(byId('found-opens'), key !== null);
    if (!key) return;
    const { entries } = key;
    setText(byId('found-open-h'), key.domains.length ? 'Open this key' : 'Open this key: no rule has such entries');
    byId('found-open-rows').replaceChildren(...key.domains.slice(0, MAX_FOUND).map(domain => make('li', '', link(keyAddress(domain, entries), keyElement(domain, hideValues(entries))))));
    const others = domainNames().filter(domain => !key.domains.includes(domain));
    const choice = byId('found-open-domain');
    show(byId('found-open-other'), others.length > 0);
    choice.replaceChildren(new Option(key.domains.length ? 'another domain' : 'choose a domain', ''), ...others.map(name => new Option(shortened(name, 40, 10), name)));
    choice.onchange = () => choice.value && go(keyAddress(choice.value, entries));
  },

  list(kind, items, makeItem, most = MAX_FOUND) {
    show(byId(`found-${kind}s`), items.length > 0);
    byId(`found-${kind}-rows`).replaceChildren(...items.slice(0, most).map(makeItem));
    if (kind !== 'rule') this.note(kind, items.length);
    else show(byId('found-rules-more'), items.length > most);
  },

  note(kind, count) {
    const note = byId(`found-${kind}s-more`);
    show(note, count > MAX_FOUND);
    setText(note, `${number(count - MAX_FOUND)} more: write more of it.`);
  },
};

/** Suggests keys, rules and domains that have the words written so far, and says what Enter does. */
function suggest() {
  const text = byId('query').value.trim();
  const words = wordsOf(text);
  const isWhole = ({ entries, cut }) => !cut && !entries.some(isHidden);
  const listed = Object.values(status?.top ?? {}).flatMap(({ rows }) => rows).filter(isWhole);
  const found = new Set();
  for (const texts of words.length ? [listed, rules ?? []] : []) {
    for (const { domain, entries } of texts) {
      if (found.size === MAX_SUGGESTED) break;
      const suggestion = `${domain} ${descriptorText(entries)}`;
      if (hasWords(suggestion.toLowerCase(), words) && visible(suggestion) === suggestion) found.add(suggestion);
    }
  }
  byId('suggestions').replaceChildren(...[...found].map(suggestion => new Option(suggestion, suggestion)));
  setText(byId('query-note'), !text ? '/' : rules && readKey(text)?.domains.length === 1 ? 'Enter opens' : 'Enter searches');
}

views.search = searchView;
byId('search').addEventListener('submit', event => {
  event.preventDefault();
  search(byId('query').value.trim());
});
byId('query').addEventListener('input', suggest);
addEventListener('keydown', event => {
  const isWriting = event.target.matches?.('input:not([type=radio], [type=checkbox]), select') || document.querySelector('dialog[open]');
  if (event.key !== '/' || event.ctrlKey || event.metaKey || event.altKey || isWriting) return;
  event.preventDefault();
  byId('query').focus();
});
