// The dialog that resets what a key has counted.

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
      make('p', 'hint', 'Its next hit is the first. Controls stay. Other replicas may repeat a denial for a moment.'));
    byId('reset-by').value = editor.by;
    byId('reset-error').textContent = '';
    openDialog(byId('reset'));
    byId('reset-confirm').focus();
  },

  async confirm() {
    const { domain, entries } = reset.key;
    editor.by = byId('reset-by').value.trim();
    const query = new URLSearchParams({ domain, descriptor: descriptorText(entries), by: editor.by });
    await call('DELETE', `/v1/state?${query}`);
    byId('reset').close();
    announce('The counts are reset.');
    keyView.read();
  },
};

onConfirm('reset', reset.confirm);
