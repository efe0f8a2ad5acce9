// The operators' web page, the view `#/rules`: a table of all active rules, also those without hits; with a filter,
// sorted by a click on a column, and split into pages.

const RULES_A_PAGE = 25;

/** Words that a text must contain, in any order. */
const wordsOf = text => text.toLowerCase().split(/\s+/).filter(Boolean);
const hasWords = (text, words) => words.every(word => text.includes(word));

function textOfRule(rule) {
  rule.text ??= [rule.domain, rule.rule, rule.redacted_rule, rule.name, descriptorText(rule.entries), limitsText(rule), rule.file].join(' ').toLowerCase();
  return rule.text;
}

/** The columns to sort by: the key of a rule, and whether large ones come first. */
const RULE_SORTS = {
  rule: { keyOf: rule => `${rule.domain}\u0000${rule.rule}`, isDown: false },
  hits: { keyOf: rule => ruleNumbers(rule).hits ?? -1, isDown: true },
  over: { keyOf: rule => ruleNumbers(rule).over ?? -1, isDown: true },
  sum: { keyOf: rule => ruleNumbers(rule).sum ?? -1, isDown: true },
};

const allRules = {
  parameters: {}, found: [], sortedAt: 0,
  /** The text of the filter, and the view's address when it was written. No address contains the text. */
  kept: { hash: '', text: '' },

  open({ domain = '', sort = 'rule', turned = '', page = '1' }) {
    const text = this.kept.hash === location.hash ? this.kept.text : '';
    this.parameters = { text, domain, sort: Object.hasOwn(RULE_SORTS, sort) ? sort : 'rule', turned: turned ? 1 : '', page: Math.max(1, Number.parseInt(page, 10) || 1) };
    byId('rule-filter').value = text;
    this.apply();
  },

  change(parameters) {
    Object.assign(this.parameters, { page: 1 }, parameters);
    const { text, domain, sort, turned, page } = this.parameters;
    replaceAddress(address('rules', { domain, sort: sort === 'rule' ? '' : sort, turned, page: page === 1 ? '' : page }));
    this.kept = { hash: location.hash, text };
    this.apply();
  },

  apply() {
    const { text, domain, sort, turned } = this.parameters;
    const words = wordsOf(text);
    this.found = (rules ?? []).filter(rule => (!domain || rule.domain === domain) && hasWords(textOfRule(rule), words));
    const { keyOf, isDown } = RULE_SORTS[sort];
    const keys = new Map(this.found.map(rule => [rule, keyOf(rule)]));
    const sign = isDown !== Boolean(turned) ? -1 : 1;
    this.found.sort((a, b) => (keys.get(a) < keys.get(b) ? -sign : keys.get(a) > keys.get(b) ? sign : 0));
    this.sortedAt = performance.now();
    this.show();
  },

  show() {
    const { domain, sort, turned } = this.parameters;
    const pages = Math.max(1, Math.ceil(this.found.length / RULES_A_PAGE));
    const page = Math.min(this.parameters.page, pages);
    const start = (page - 1) * RULES_A_PAGE;
    const shown = this.found.slice(start, start + RULES_A_PAGE);
    const all = rules?.length ?? 0;
    const count = this.found.length === all ? counted(all, 'rule') : `${number(this.found.length)} of ${counted(all, 'rule')}`;
    setText(byId('rule-count'), rules === null ? 'The rules are being read.' : `${count}${pages > 1 ? `, ${number(start + 1)} to ${number(start + shown.length)} shown` : ''}`);
    show(byId('all-rule-table'), shown.length > 0);
    show(byId('rule-pages'), pages > 1);
    byId('rules-before').disabled = page === 1;
    byId('rules-after').disabled = page === pages;
    setText(byId('rule-page'), `Page ${page} of ${pages}`);
    const choice = byId('rule-domain');
    const names = domainNames();
    if (choice.names !== names.join('\n')) {
      choice.names = names.join('\n');
      choice.replaceChildren(new Option('All domains', ''), ...names.map(name => new Option(shortened(name, 40, 10), name)));
    }
    choice.value = domain;
    for (const head of byId('all-rule-table').querySelectorAll('th[data-sort]')) {
      const isSorted = head.dataset.sort === sort;
      const isDown = RULE_SORTS[head.dataset.sort].isDown !== Boolean(turned);
      if (isSorted) head.ariaSort = isDown ? 'descending' : 'ascending';
      else head.removeAttribute('aria-sort');
    }
    reconcile(byId('all-rule-rows'), shown, keyOfRule, makeRule, fillRule);
  },

  /** Numbers have changed: the order follows unless someone reads. */
  refresh() {
    const isDue = performance.now() - this.sortedAt > ORDER_MS && this.parameters.sort !== 'rule';
    if (rules && (this.found.length === 0 || isDue || !rules.includes(this.found[0])) && !isInUse(byId('all-rule-table'))) this.apply();
    else this.show();
  },
};

views.rules = allRules;
byId('rule-filter').addEventListener('input', event => allRules.change({ text: event.target.value }));
byId('rule-domain').addEventListener('change', event => allRules.change({ domain: event.target.value }));
for (const [id, by] of [['rules-before', -1], ['rules-after', 1]]) {
  byId(id).addEventListener('click', () => {
    allRules.change({ page: allRules.parameters.page + by });
    byId('rules-h1').scrollIntoView();
  });
}
for (const head of byId('all-rule-table').querySelectorAll('th[data-sort]')) {
  head.querySelector('button').addEventListener('click', () => {
    const { sort } = head.dataset;
    const turned = allRules.parameters.sort === sort && !allRules.parameters.turned ? 1 : '';
    allRules.change({ sort, turned });
  });
}
