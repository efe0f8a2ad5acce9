// The operators' web page, the view `#/key`: one key (a domain and a descriptor): what applies and why, what is used,
// its controls and denials. An operator can reset its counts.

/** How often the key is read: each time, weir reads the store. */
const STATE_MS = 5000;
/** A log of hits of this length takes the store too long to be read again by itself. */
const MAX_LOG_READ = 10000;
/** Spans to count hits over, in milliseconds. */
const SPANS = [['1m', 60000], ['5m', 300000], ['1h', 3600000]];
/** Rows of each list of its rule that are searched for it. */
const MAX_ROWS_READ = 1000;
const UNIT_MS = { second: 1000, minute: 60000, hour: 3600000, day: 86400000, week: 604800000, month: 2419200000, year: 31536000000 };

const keyView = {
  plot: new RulePlot(byId('key-plot'), 'All keys of its rule, the last hour'),
  /** The key; `isCut` if it is long, and weir keeps a part of it only. */
  domain: '', entries: [], isCut: false,
  /** The last explanation; null: none yet, or it cannot be read. */
  explained: null,
  /** Whether the view waits until it is known which values weir shows as hashes. */
  isWaiting: false,
  /** `turn` counts the keys that were opened, so that a late answer for another key is dropped. */
  turn: 0, readAt: 0, listsAt: 0,

  open({ domain = '', descriptor = '', cut = '' }) {
    const entries = readDescriptor(descriptor) ?? [];
    Object.assign(this, { domain, entries, isCut: cut !== '', explained: null, readAt: 0, listsAt: 0 });
    this.turn += 1;
    const isGood = domain !== '' && this.entries.length > 0;
    byId('key-h').replaceChildren(isGood ? keyElement('', this.entries) : 'This address names no key');
    show(byId('key-body'), isGood);
    show(byId('key-head'), isGood);
    show(byId('key-actions'), isGood);
    for (const part of ['key-limits', 'key-plot', 'key-why', 'key-facts', 'key-listed', 'key-counts']) show(byId(part), false);
    byId('key-verdict').className = 'lead';
    setText(byId('key-verdict'), isGood ? 'Reading what applies.' : '');
    setText(byId('key-error'), '');
    this.isWaiting = isGood;
  },

  start() {
    this.isWaiting = false;
    this.showUnknown();
    this.showDomains();
    this.read();
    this.readLists();
  },

  close() {
    this.turn += 1;
  },

  /** What weir hides and nobody has written here. */
  unknown: () => revealValues(keyView.entries).filter(isHidden),
  /** Whether the address has what requests have. */
  isWhole: () => !keyView.isCut && keyView.unknown().length === 0,

  /** Asks for the values that weir hides. */
  showUnknown() {
    const unknown = this.unknown();
    show(byId('key-values'), unknown.length > 0);
    byId('key-value-rows').replaceChildren(...unknown.map(({ key }) => {
      const input = make('input', '');
      Object.assign(input, { autocomplete: 'off', spellcheck: false, autocapitalize: 'off', required: true });
      input.dataset.key = key;
      return make('label', 'field', 'Value of ', code(key), input);
    }));
    show(byId('key-cut'), this.isCut);
    byId('key-reset').disabled = true;
  },

  showDomains() {
    const names = [...new Set([this.domain, ...domainNames()])];
    const choice = byId('key-domain');
    choice.replaceChildren(...names.map(name => new Option(shortened(name, 40, 10), name)));
    choice.value = this.domain;
  },

  refresh() {
    if (!this.entries.length) return;
    if (this.isWaiting && redactedKeys) this.start();
    this.showControls();
    if (byId('key-domain').length < 2 && rules) this.showDomains();
    if (document.hidden || lost) return;
    const log = this.explained?.state?.log_len ?? 0;
    if (this.readAt && performance.now() - this.readAt > STATE_MS && log <= MAX_LOG_READ) this.read();
    if (this.listsAt && performance.now() - this.listsAt > VIEW_MS) this.readLists();
  },

  /** Its controls. Those of values that are not known are not known either. */
  showControls() {
    const entries = revealValues(this.entries);
    const its = this.isWhole() ? controls.filter(control => isMatched(control, this.domain, entries)) : [];
    show(byId('no-key-controls'), its.length === 0);
    setText(byId('no-key-controls'), this.isWhole() ? 'No control matches this key.' : 'Not known without the whole key.');
    listControls(byId('key-control-rows'), its.slice(0, MAX_CONTROLS_SHOWN));
    const own = denials.rows.filter(row => row.domain === this.domain && descriptorText(row.entries) === descriptorText(this.entries)).slice(0, FEW_KEYS);
    show(byId('key-denials'), own.length > 0);
    reconcile(byId('key-denial-rows'), own, ({ at }) => at, ({ element }) => element.cloneNode(true), () => {});
  },

  /** Reads what applies, and what is used. */
  async read() {
    if (!this.isWhole()) return setText(byId('key-verdict'), '');
    const { turn, domain } = this;
    this.readAt = performance.now();
    const entries = revealValues(this.entries);
    let answer;
    try {
      answer = await call('GET', `/v1/explain?${new URLSearchParams({ domain, descriptor: descriptorText(entries) })}`);
    } catch (error) {
      if (!(error instanceof Rejection)) throw error;
      if (turn !== this.turn) return;
      setText(byId('key-error'), failure(error));
      if (!this.explained) setText(byId('key-verdict'), '');
      return;
    }
    if (turn !== this.turn) return;
    const isFirst = this.explained === null;
    [this.explained] = answer.descriptors;
    setText(byId('key-error'), '');
    setText(byId('key-read-at'), `Read at ${timeOfDay(serverNow())}.`);
    showExplained(this.explained, this);
    if (isFirst) {
      // Once: it is read again every few seconds.
      announce(byId('key-verdict').textContent);
      this.readLists();
      this.count(entries);
    }
  },

  /** Counts its hits over the last spans, where an algorithm knows their times. */
  async count(entries) {
    const limits = this.explained.rule?.limits ?? [];
    const spansOf = ({ algorithm, unit, unit_multiplier: times }) => (['sliding_log', 'bucketed_window'].includes(algorithm) ? (UNIT_MS[unit] ?? 0) * times : 0);
    const longest = Math.max(0, ...limits.map(spansOf));
    const spans = SPANS.filter(([, ms]) => ms <= longest);
    if (!spans.length || !this.explained.state) return;
    const { turn, domain } = this;
    const query = new URLSearchParams({ domain, descriptor: descriptorText(entries), span: spans.map(([span]) => span).join(',') });
    const answer = await readQuietly(`/v1/count?${query}`);
    if (turn !== this.turn || !answer) return;
    const texts = answer.counts.filter(({ count }) => count !== undefined).map(({ count, span_ms: span, is_minimum: isLeast }) => `${isLeast ? 'at least ' : ''}${number(count)} in ${duration(span)}`);
    show(byId('key-counts'), texts.length > 0);
    setText(byId('key-counts'), `Hits counted: ${texts.join(', ')}.`);
  },

  /** Reads its numbers in the lists of top keys, and the history of its rule. */
  async readLists() {
    const { turn, domain, explained } = this;
    this.listsAt = performance.now();
    const rule = explained?.rule?.rule ?? null;
    if (rule !== null) this.plot.read(domain, rule);
    const name = keyOfRow({ domain, entries: this.entries });
    const lists = await readTopOf(domain, rule, MAX_ROWS_READ, { more: { minute: { by: 'hits', window: '1m' } }, window: '1h' });
    if (turn !== this.turn) return;
    // A value that was written here is in the lists as a hash that only weir can compute.
    const rows = by => lists[by].rows.filter(row => keyOfRow({ ...row, rule: undefined, limit: undefined }) === name);
    const facts = keyLists.flatMap(({ by }) => rows(by).map(row => [
      by === 'near' ? `Near its limit${row.limit ? ` ${shortened(row.limit)}` : ''}` : { hits: 'Hits', denied: 'Denied', would_be_denied: 'Would be denied', banned: 'Its ban ends' }[by],
      rowText(by, row),
    ]));
    if (facts.length && lists.minute.seconds !== undefined) facts.push(['Hits in the last minute', this.minuteText(lists.minute, rows('minute')[0])]);
    // An unknown value has no explanation, but its row has the rule.
    const listedRule = rule === null ? keyLists.flatMap(({ by }) => rows(by)).find(row => row.rule)?.rule : undefined;
    if (listedRule) this.plot.read(domain, listedRule);
    show(byId('key-listed'), facts.length > 0);
    show(byId('key-unlisted'), facts.length === 0 && lists.hits.seconds !== undefined && !this.entries.some(isHidden));
    byId('key-tiles').replaceChildren(...facts.map(([title, value]) => make('div', '', make('dt', '', title), make('dd', '', make('b', '', value)))));
    const source = lists.hits.seconds === undefined ? '' : `${replicasText(lists.hits)}, ${windowText(lists.hits)}`;
    setText(byId('key-listed-note'), `Of ${source}.`);
  },

  /** The hits of a row of the last minute; without one, the most that it may have had. */
  minuteText({ rows, unlisted }, row) {
    if (row) return countText(row);
    const most = Math.max(unlisted, rows.length < MAX_ROWS_READ ? 0 : rows.at(-1).count);
    return most ? `≤${number(most)}` : '0';
  },

  edit(action) {
    editor.open({ ...draftOfKey({ domain: this.domain, entries: this.entries, cut: this.isCut }), action });
  },
};

/** The dialog that resets what a key has counted. */
const reset = {
  key: null,

  open(domain, entries, state) {
    this.key = { domain, entries };
    const used = state.limits.filter(({ used: count }) => count !== null);
    const list = make('ul', '', ...used.map(limit => make('li', '', `${visible(limit.text)}: ${number(limit.used)} used, which becomes 0`)));
    byId('reset-text').replaceChildren(
      make('p', 'summary limit', make('b', '', 'Reset '), keyElement(domain, hideValues(entries))),
      used.length ? list : make('p', '', 'Nothing is counted now.'),
      state.holds ? make('p', '', `${counted(state.holds.hits, 'hit')} in flight will be forgotten: until they end, that many more may be in flight.`) : '',
      make('p', 'hint', 'Its next hit is the first, and a ban ends. Controls stay. Other replicas may repeat a denial for a moment.'));
    byId('reset-by').value = editor.by;
    byId('reset-error').textContent = '';
    openDialog(byId('reset'));
    byId('reset-confirm').focus();
  },

  /** Opens it for the key of a list; its view if the list has only a part of the key. */
  async openRow({ domain, entries, cut }) {
    const known = revealValues(entries);
    if (cut || known.some(isHidden)) return go(keyAddress(domain, entries, cut));
    const state = await readQuietly(`/v1/state?${new URLSearchParams({ domain, descriptor: descriptorText(known) })}`);
    this.open(domain, known, state ?? { limits: [] });
  },

  async confirm() {
    const { domain, entries } = reset.key;
    editor.by = byId('reset-by').value.trim();
    const query = new URLSearchParams({ domain, descriptor: descriptorText(entries), by: editor.by });
    await call('DELETE', `/v1/state?${query}`);
    byId('reset').close();
    announce('The counts are reset.');
    if (view === keyView) keyView.read();
  },
};

onConfirm('reset', reset.confirm);

views.key = keyView;
for (const action of ['block', 'allow', 'limit']) onPress(byId(`key-${action}`), () => keyView.edit(action));
onPress(byId('key-reset'), () => reset.open(keyView.domain, revealValues(keyView.entries), keyView.explained.state));
byId('key-again').addEventListener('click', () => keyView.read());
byId('key-domain').addEventListener('change', event => go(keyAddress(event.target.value, revealValues(keyView.entries), keyView.isCut)));
byId('key-values').addEventListener('submit', event => {
  event.preventDefault();
  const written = [...byId('key-value-rows').querySelectorAll('input')];
  const entries = revealValues(keyView.entries).map(entry => {
    const input = isHidden(entry) ? written.find(({ dataset, value }) => dataset.key === entry.key && value !== '') : undefined;
    return input ? { ...entry, value: input.value } : entry;
  });
  keyView.isCut = false;
  go(keyAddress(keyView.domain, entries));
});
