// The operators' web page: the dialog that adds or changes a control (a block, an allow or another limit that an
// operator sets). It first sends a dry run, and shows what the control would match.

const ACTION_HINTS = {
  block: 'Denies these descriptors and charges nothing.',
  allow: 'Lets these descriptors pass, whatever their limits.',
  limit: 'Gives the limit of their rule other numbers. What is counted stays.',
};

const editor = {
  /** The id of the control that is changed; null for a new one. */
  id: null,
  /** What this form has no fields for: members of the control, and of its limit. */
  others: {}, limitOthers: {},
  /** What was checked, and what weir answered; null while the form is shown. */
  checked: null,
  by: '',

  open({ id = null, action = 'block', domain = '', entries = [], exact = false, text = false, limit, count = true, lasts = 'h', until, warning = '', by, at, left_ms, ...others }) {
    // The form has the number of a rate.
    const { n = '', burst = '', name = '', rate, ...limitOthers } = limit ?? {};
    Object.assign(this, { id, others, limitOthers });
    byId('editor-h').textContent = id === null ? 'Add a control' : 'Change a control';
    document.querySelector(`input[name=action][value=${action}]`).checked = true;
    // Of several domains someone has to choose.
    byId('domain').value = domain || (byId('domains').children.length === 1 ? byId('domains').firstElementChild.value : '');
    byId('entries').replaceChildren();
    for (const entry of entries.length || id !== null ? entries : [{ key: '', value: '' }]) this.addEntry(entry);
    byId('exact').checked = exact;
    byId('text').checked = isTextOfNetwork({ entries, text });
    byId('limit-n').value = n;
    byId('limit-burst').value = burst;
    byId('limit-name').value = name;
    byId('count').checked = count;
    byId('for').value = 1;
    byId('lasts').value = lasts;
    const end = until ?? Date.now() + 3600000;
    byId('until').value = `${dayOf(end)}T${timeOfDay(end)}`;
    setText(byId('until-zone'), zone(end));
    for (const input of this.texts()) input.value = others[input.dataset.member] ?? '';
    byId('by').value = this.by;
    byId('force').value = '';
    show(byId('force-field'), false);
    show(byId('entry-warning'), warning !== '');
    byId('entry-warning').textContent = warning;
    this.showForm();
    this.adapt();
    openDialog(byId('editor'));
    // What is prefilled needs a check more than a keyboard.
    const first = domain ? byId('editor-h') : byId('domain').value ? byId('entries').querySelector('input') : byId('domain');
    first.focus();
  },

  addEntry({ key, value, ...others }) {
    const row = make('div', 'entry');
    row.others = others;
    const input = (text, label, list) => {
      const element = make('input', '');
      Object.assign(element, { value: text, maxLength: 1024, spellcheck: false, autocapitalize: 'off' });
      element.setAttribute('aria-label', label);
      element.setAttribute('placeholder', label);
      if (list) element.setAttribute('list', list);
      return element;
    };
    const remove = button('×', 'quiet', () => {
      const next = row.nextElementSibling ?? row.previousElementSibling;
      row.remove();
      this.adapt();
      (next?.querySelector('input') ?? byId('add-entry')).focus();
    });
    remove.setAttribute('aria-label', 'Remove this entry');
    row.append(input(key, 'key', 'entry-keys'), make('span', 'equals', '='), input(value, 'value'), remove);
    byId('entries').append(row);
    return row;
  },

  /** The fields that are text, each with the member of the control that it is. */
  texts: () => [...document.querySelectorAll('#editor [data-member]')],

  action: () => document.querySelector('input[name=action]:checked').value,

  /** Shows the fields that the action, the duration and the values need. */
  adapt() {
    const action = this.action();
    setText(byId('action-hint'), ACTION_HINTS[action]);
    show(byId('text-field'), networksOf({ entries: this.entries() }).length > 0);
    show(byId('limit-fields'), action === 'limit');
    show(byId('count-field'), action === 'allow');
    const lasts = byId('lasts').value;
    show(byId('for-field'), lasts.length === 1);
    show(byId('until-field'), lasts === 'until');
  },

  entries() {
    const entries = [...byId('entries').children].map(row => {
      const [key, value] = [...row.querySelectorAll('input')].map(input => input.value);
      return { ...row.others, key, value };
    });
    return entries.filter(({ key, value }) => key || value);
  },

  body() {
    const action = this.action();
    const body = {
      ...this.others,
      domain: byId('domain').value.trim(),
      entries: this.entries(),
      exact: byId('exact').checked,
      action,
      ...Object.fromEntries(this.texts().map(input => [input.dataset.member, input.value.trim()])),
      by: byId('by').value.trim(),
    };
    if (!byId('text-field').hidden) body.text = byId('text').checked;
    if (action !== 'block') delete body.except;
    const lasts = byId('lasts').value;
    if (lasts === 'until') body.until = byId('until').value && new Date(byId('until').value).toISOString().replace('.000', '');
    else body.for = lasts === 'forever' ? lasts : `${byId('for').value}${lasts}`;
    if (action === 'allow') body.count = byId('count').checked;
    if (action === 'limit') {
      body.limit = { ...this.limitOthers, n: Number(byId('limit-n').value), name: byId('limit-name').value.trim() };
      if (byId('limit-burst').value) body.limit.burst = Number(byId('limit-burst').value);
    }
    return body;
  },

  /** Sends a control: under its id, or, if it is new, under the one that weir computes. */
  send(body, query) {
    const [method, path] = this.id === null ? ['POST', ''] : ['PUT', `/${encodeURIComponent(this.id)}`];
    return call(method, `/v1/controls${path}?${new URLSearchParams(query)}`, body);
  },

  fail(error, focus) {
    if (!(error instanceof Rejection)) throw error;
    byId('editor-error').textContent = failure(error);
    focus.focus();
  },

  async submit() {
    const next = byId('editor-next');
    next.disabled = true;
    byId('editor-error').textContent = '';
    try {
      await (this.checked ? this.put() : this.check());
    } finally {
      next.disabled = false;
    }
    // While it was disabled it could not have the focus.
    if (this.checked && byId('editor').open) next.focus();
  },

  async check() {
    if (this.action() === 'limit' && byId('limit-n').value === '') {
      return this.fail(new Rejection(0, { error: 'write the number of requests' }), byId('limit-n'));
    }
    const body = this.body();
    if (!body.domain) return this.fail(new Rejection(0, { error: 'choose a domain', help: '* stands for all domains' }), byId('domain'));
    const query = !byId('force-field').hidden && byId('force').value.trim() === body.domain ? { force: 1 } : {};
    try {
      const written = await this.send(body, { ...query, dry_run: 1 });
      this.by = body.by;
      this.checked = { body, query };
      this.showPreview(written);
    } catch (error) {
      // Also none: the server asks for force.
      const isEverything = error.status === 409 && body.entries.every(({ value }) => /^\*+$|\/0$/.test(value));
      if (isEverything) {
        show(byId('force-field'), true);
        setText(byId('force-domain'), visible(body.domain));
        setText(byId('force-except'), exceptText(body) ?? '');
        error.help = `write other entries, or type the domain ${visible(body.domain)} to apply it to everything`;
      }
      this.fail(error, isEverything ? byId('force') : byId('domain'));
    }
  },

  async put() {
    const { body, query } = this.checked;
    try {
      const written = await this.send(body, query);
      byId('editor').close();
      announce(`The control is active. ${reachText(written)}`);
      // Not waited for: the editor can be opened again meanwhile, and its button works.
      readControls();
      if (view === keyView) keyView.read();
    } catch (error) {
      this.fail(error, byId('editor-next'));
    }
  },

  showForm() {
    this.checked = null;
    show(byId('fields'), true);
    show(byId('preview'), false);
    byId('editor-error').textContent = '';
    byId('editor-back').textContent = 'Cancel';
    byId('editor-next').textContent = 'See what it matches';
    byId('editor-next').className = 'primary';
  },

  showPreview(written) {
    const { control, rules, warnings, matched, matched_hits: hits, all_hits: all } = written;
    const { action, domain, entries, exact, until, left_ms: left } = control;
    const ends = until === null ? 'until it is removed' : `for ${duration(left)}, until ${moment(until)} ${zone(until)}`;
    const everything = entries.length === 0;
    const parts = [make('p', `summary lead ${action}`, make('b', '', { block: 'Block ', allow: 'Allow ', limit: 'Limit ' }[action]),
      everything ? 'everything of ' : exact ? 'exactly ' : '', keyElement(domain, entries),
      exceptText(control) ?? '', isTextOfNetwork(control) ? ' as a text' : '', action === 'limit' ? ` ${changeText(control.limit)}` : '', ` ${ends}.`)];
    if (action === 'allow' && control.count === false) parts.push(make('p', '', 'Its hits are not counted.'));
    if (warnings.length) parts.push(make('ul', 'warned', ...warnings.map(warning => make('li', '', sentence(shortened(warning, 300, 50))))));
    const saysSo = warnings.some(warning => warning.startsWith('it replaces'));
    if (this.id === null && !saysSo && controls.some(({ id }) => id === control.id)) parts.push(make('p', 'warned', 'It replaces the control that matches the same now.'));
    if (matched.length) {
      const rows = matched.slice(0, FEW_KEYS).map(key => make('tr', '', rowHead(keyElement(key.domain, key.entries)), make('td', 'n', counted(key.count, 'hit'))));
      const caption = make('caption', '', 'Keys with many hits in the last hour that it matches');
      parts.push(make('table', 'keys all', caption, make('tbody', '', ...rows)));
      if (matched.length > FEW_KEYS) parts.push(make('p', 'hint', `And ${matched.length - FEW_KEYS} or more others.`));
    } else {
      parts.push(make('p', '', 'None of the keys with many hits in the last hour matches.'));
    }
    if (hits) {
      const share = hits / all;
      const isMuch = action === 'block' && share >= 0.1;
      parts.push(make('p', isMuch ? 'warned' : '', make('b', '', percent(share)), ` of all hits of the last hour on this replica match${isMuch ? ': a key that many share is not one client' : ''}.`));
    }
    const names = rules.slice(0, 10).map(rule => shortened(rule)).join(', ');
    const more = rules.length > 10 ? ` and ${rules.length - 10} more` : '';
    parts.push(make('p', 'hint', rules.length ? `Rules whose descriptors it may match: ${names}${more}.` : 'No rule has such descriptors: it matches requests all the same.'));
    parts.push(make('p', 'hint', reachText(written)));
    byId('preview').replaceChildren(...parts);
    show(byId('fields'), false);
    show(byId('preview'), true);
    byId('editor-back').textContent = 'Back';
    byId('editor-next').textContent = { block: 'Block', allow: 'Allow', limit: 'Limit' }[action] + (this.id === null ? '' : ' as changed');
    byId('editor-next').className = action === 'block' ? 'danger' : 'primary';
    byId('editor').scrollTop = 0;
    byId('editor-next').focus();
  },
};

onPress(byId('add'), () => editor.open({}));
byId('add-entry').addEventListener('click', () => editor.addEntry({ key: '', value: '' }).querySelector('input').focus());
byId('editor-form').addEventListener('submit', event => {
  event.preventDefault();
  editor.submit();
});
byId('entries').addEventListener('input', () => editor.adapt());
byId('editor-form').addEventListener('change', () => editor.adapt());
byId('editor-back').addEventListener('click', () => {
  if (!editor.checked) return byId('editor').close();
  editor.showForm();
  byId('editor-h').focus();
});
