// The dialog that resets what a key has counted.

const reset = {
  key: null,

  /** Opens it for a key with its state. */
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
    byId('reset-confirm').disabled = true;
    try {
      const { domain, entries } = this.key;
      editor.by = byId('reset-by').value.trim();
      const query = new URLSearchParams({ domain, descriptor: descriptorText(entries), by: editor.by });
      await call('DELETE', `/v1/state?${query}`);
      byId('reset').close();
      announce('The counts are reset.');
      keyView.read();
    } catch (error) {
      if (!(error instanceof Rejection)) throw error;
      byId('reset-error').textContent = failure(error);
    } finally {
      byId('reset-confirm').disabled = false;
    }
  },
};

byId('reset-form').addEventListener('submit', event => {
  event.preventDefault();
  reset.confirm();
});
byId('reset-cancel').addEventListener('click', () => byId('reset').close());
