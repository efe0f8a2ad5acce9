// The operators' web page, the view `#/rule`: one rule with its limits, its last hour, its controls and its top keys.

/** How often a view reads what the status does not have. */
const VIEW_MS = 10000;
/** The names of the lists of top keys: after a number, and as a heading. */
const LIST_TEXTS = { banned: ['banned', 'Bans end'], denied: ['denied', 'Most denied'], would_be_denied: ['would be denied', 'Would be denied'], near: ['near its limit', 'Near their limit'], hits: ['hits', 'Most hits'] };

/** Whether a path has a hash in place of a value that weir hides, as in lists of keys. */
const hasHash = rule => /_hash:[0-9a-f]+(?:\.|$)/.test(rule);

/** Draws the last hour of a rule. */
class RulePlot {
  steps = new Steps(10, 360);
  rule = null;
  /** Made when it is first shown. */
  plot = null;

  constructor(root, title) {
    Object.assign(this, { root, title });
  }

  async read(domain, rule) {
    const key = ruleKey(domain, rule);
    if (this.rule !== key) this.steps.values.clear();
    this.rule = key;
    await rulesAreRead;
    const answer = knownRules.has(key) || hasHash(rule) ? await readQuietly(`/v1/history?${new URLSearchParams({ step: '10s', domain, rule })}`) : null;
    if (this.rule !== key) return;
    show(this.root, answer !== null);
    if (!answer) return;
    this.steps.fill(answer);
    this.plot ??= new Plot(this.root, { title: this.title, what: 'Decisions of the rule a second in the last hour', steps: this.steps, ...HOUR_MARKS });
    this.plot.draw(Date.parse(answer.until) - 1);
  }
}

/** Reads the lists of top keys of a rule, of the window and the replicas that were chosen, and more by their names. An empty one where there is none. */
async function readTopOf(domain, rule, limit, { more = {}, window = chosen.window } = {}) {
  const isKnown = rules === null || (rule === null ? domainNames().includes(domain) : knownRules.has(ruleKey(domain, rule)));
  const read = async ([name, list]) => {
    const answer = isKnown ? await readQuietly(`/v1/top?${new URLSearchParams({ ...chosenLists(), window, ...list, limit, domain, ...(rule === null ? {} : { rule }) })}`) : null;
    return [name, answer ?? { rows: [] }];
  };
  const lists = [...keyLists.map(({ by }) => [by, { by }]), ...Object.entries(more)];
  return Object.fromEntries(await Promise.all(lists.map(read)));
}

const ruleView = {
  plot: new RulePlot(byId('one-rule-plot'), 'The last hour'),
  domain: '', rule: '', readAt: 0, shownRule: null,

  open({ domain = '', rule = '' }) {
    Object.assign(this, { domain, rule, readAt: 0, shownRule: null });
    this.showName();
    byId('one-rule-keys').replaceChildren();
    show(byId('no-one-rule-keys'), false);
    show(byId('one-rule-plot'), false);
  },

  showName() {
    byId('one-rule-h').replaceChildren(code(this.rule), make('span', 'note', ' of ', code(this.domain)));
  },

  known: () => knownRules.get(ruleKey(ruleView.domain, ruleView.rule)),

  refresh() {
    let known = this.known();
    if (!known && hasHash(this.rule)) {
      // As in an address.
      known = rules?.find(({ domain, redacted_rule: redacted }) => domain === this.domain && redacted === this.rule);
      if (known) {
        Object.assign(this, { rule: known.rule, readAt: 0 });
        this.showName();
      }
    }
    setText(byId('one-rule-note'), known || rules === null ? '' : 'No rule has this name now.');
    show(byId('one-rule-note'), !known && rules !== null);
    show(byId('one-rule-buttons'), known !== undefined);
    const { hits, over, sum } = ruleNumbers(this);
    for (const [name, value] of [['hits', hits === null ? '–' : rate(hits)], ['over', over === null ? '–' : percent(over)], ['sum', sum === null ? '–' : number(sum)]]) setText(byId(`one-rule-${name}`), value);
    if (known !== this.shownRule) this.showFacts(known);
    const its = controls.filter(control => this.isItsControl(control));
    show(byId('one-rule-controls'), its.length > 0);
    listControls(byId('one-rule-control-rows'), its.slice(0, MAX_CONTROLS_SHOWN));
    if (performance.now() - this.readAt > VIEW_MS || this.readAt === 0) this.read();
  },

  /** Whether the descriptors of the rule may match a control. */
  isItsControl({ domain, entries, text }) {
    const known = this.known();
    if (!known || (domain !== '*' && domain !== this.domain)) return false;
    return entries.every(({ key, value }) => known.entries.some(entry => entry.key === key && mayMeet(value, entry.value, text)));
  },

  showFacts(known) {
    this.shownRule = known;
    const facts = known ? [
      ['Limits', make('span', '', limitsText(known), ...modeBadges(known))],
      ['Matches', keyElement('', known.entries)],
      ['File', `${shortened(known.file)}${known.line === null ? '' : `:${known.line}`}`],
      known.patches?.length ? ['Patched at', known.patches.map(patch => shortened(patch)).join(', ')] : null,
      known.charge === 'together' ? ['Charged', 'together with the other descriptors of a request'] : null,
    ].filter(Boolean) : [];
    byId('one-rule-facts').replaceChildren(...facts.flatMap(([name, value]) => [make('dt', '', name), make('dd', '', value)]));
  },

  async read() {
    this.readAt = performance.now();
    const { domain, rule } = this;
    this.plot.read(domain, rule);
    const lists = await readTopOf(domain, rule, FEW_KEYS);
    if (view !== this || domain !== this.domain || rule !== this.rule) return;
    const shown = keyLists.filter(({ by }) => lists[by].rows.length);
    show(byId('no-one-rule-keys'), shown.length === 0);
    byId('one-rule-keys').replaceChildren(...shown.map(({ by }) => {
      const rows = lists[by].rows.map(key => make('tr', '', rowHead(keyLink(key.domain, key, '')), make('td', 'n', rowText(by, key))));
      return make('section', '', make('h3', '', LIST_TEXTS[by][1]), make('table', 'keys short', make('tbody', '', ...rows)));
    }));
  },

  /** Opens the form for all descriptors of the rule. */
  edit(action) {
    const entries = this.known().entries.filter(({ value }) => value !== '');
    const warning = entries.length < this.known().entries.length ? 'Without the entries that clients choose: it matches all of their values.' : '';
    editor.open({ action, domain: this.domain, entries, warning });
  },
};

views.rule = ruleView;
for (const action of ['block', 'allow', 'limit']) onPress(byId(`one-rule-${action}`), () => ruleView.edit(action));
