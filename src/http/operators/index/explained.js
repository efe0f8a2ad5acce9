// The operators' web page: shows the answer of `/v1/explain` about one key in words: the rule and the control (a block,
// an allow or another limit of an operator) that apply, why, and what is used.

const BY_TEXTS = { value: 'by its value', wildcard: 'by a wildcard', key: 'by its key alone' };

// A network or a list has a place, such as "10.0.0.0/8 of blocked.txt:17".
const byText = matched => (matched.within ? `in ${matched.within}` : BY_TEXTS[matched.by] ?? '');

/** What happens to the next request, as a CSS class and a sentence. */
function verdict({ rule, control, state, matched }) {
  const until = control && (control.until === null ? 'until it is removed' : `until ${moment(control.until)}`);
  if (control?.action === 'block') return ['denied-text', `Denied: it is blocked ${until}.`];
  if (control?.action === 'allow') return ['', `Passes: a control allows it ${until}.`];
  if (!matched) return ['', 'Passes: no rule matches it.'];
  if (rule?.unlimited) return ['', 'Passes: its rule has no limit.'];
  if (state?.error) return ['', 'Its counts cannot be read.'];
  const limits = state?.limits ?? [];
  const used = limits.filter(({ shadow_mode: shadow, remaining }) => !shadow && remaining === 0);
  const changed = control?.action === 'limit' ? ' A control has changed the limit.' : '';
  if (used.length && rule?.shadow_mode) return ['', `Passes: it is over its limit, but its rule is in shadow mode.${changed}`];
  if (used.length) {
    const waits = used.map(({ retry_ms: retry }) => retry).filter(retry => retry !== null);
    return ['denied-text', `Over its limit${waits.length ? `: the next hit passes in ${duration(Math.max(...waits))}` : ''}.${changed}`];
  }
  const left = Math.min(...limits.filter(({ shadow_mode: shadow, remaining }) => !shadow && remaining !== null).map(({ remaining }) => remaining));
  return ['', `Within its limits${Number.isFinite(left) ? `: ${number(left)} left` : ''}.${changed}`];
}

function showExplained(explained, { entries, domain }) {
  const { rule, state, metric, charge, near_misses: misses, steps, control } = explained;
  const [className, text] = verdict(explained);
  byId('key-verdict').className = `lead ${className}`;
  setText(byId('key-verdict'), text);
  showLimits(state, rule);
  byId('key-reset').disabled = state === null || Boolean(state.error);
  const isShown = !entries.some(isHidden);
  show(byId('key-why'), true);
  byId('key-steps').replaceChildren(...steps.map(({ matched, later, list_name: list }, i) => {
    const entry = keyElement('', [entries[i]]);
    if (!matched) return make('li', '', entry, ' matches no entry of the rules');
    const named = list ? make('span', 'note', `Its value is the name of ${shortened(list)}, and not in that list`) : null;
    const more = later.length ? make('span', 'note', `Also, with less precedence: ${later.map(({ descriptor, ...origin }) => `${shortened(descriptor)} (${placeText(origin)})`).join(', ')}`) : null;
    return make('li', '', entry, ' matches ', code(matched.descriptor), ` (${placeText(matched)}) ${byText(matched)}`, more, named);
  }));
  byId('key-misses').replaceChildren(...misses.map(({ message }) => make('li', 'warned', sentence(shortened(message, 300, 80)))));
  const facts = [
    rule && ['Rule', make('span', '', knownRules.has(ruleKey(domain, rule.rule)) ? link(ruleAddress(domain, rule.rule), code(rule.rule)) : code(rule.rule), ` (${placeOfRule(rule)})`, ...modeBadges(rule))],
    rule && ['Limits', limitsText(rule)],
    control && ['Control', make('span', '', `${actionText(control)} `, code(control.id), ...networksOf(control).map(network => ` in ${network}`))],
    metric && isShown && ['Metric', code(metric)],
    explained.key && isShown && ['Key in the store', code(explained.key)],
    charge === 'together' && ['Charged', 'together with the other descriptors of a request'],
  ].filter(Boolean);
  show(byId('key-facts'), facts.length > 0);
  byId('key-facts').replaceChildren(...facts.flatMap(([name, value]) => [make('dt', '', name), make('dd', '', value)]));
}

function showLimits(state, rule) {
  show(byId('key-limits'), state !== null && !state.error);
  setText(byId('key-state-error'), state?.error ? `The store could not be read: ${shortened(state.error, 200, 50)}.` : '');
  const notes = [];
  if (state?.holds?.hits) notes.push(`${counted(state.holds.hits, 'hit')} in flight; the oldest expires in ${duration(state.holds.expires_ms)}.`);
  if (state?.log_len) notes.push(`Its log has ${number(state.log_len)} ${state.log_len === 1 ? 'entry' : 'entries'}${state.log_len > MAX_LOG_READ ? ': it is read again only when you ask' : ''}.`);
  setText(byId('key-state-note'), notes.join(' '));
  if (!state || state.error) return;
  reconcile(byId('key-limit-rows'), state.limits.map((limit, i) => ({ ...limit, i })), ({ i, text, name }) => `${i} ${name} ${text}`, limit => {
    const row = make('tr', '');
    const fill = make('i', '');
    const bar = make('span', 'bar', fill);
    const head = rowHead(`${limit.name ? `${shortened(limit.name)}: ` : ''}${visible(limit.text)}`, ...modeBadges({ shadow_mode: limit.shadow_mode || rule?.shadow_mode }), bar);
    row.parts = { fill };
    row.append(head, ...[['used', 'Used'], ['left', 'Left'], ['reset', 'Resets in']].map(([name, label]) => {
      row.parts[name] = make('span', '');
      return labelled('n', label, row.parts[name]);
    }));
    return row;
  }, (row, { used, remaining, n, reset_ms: resets }) => {
    const { fill, used: usedCell, left, reset: resetCell } = row.parts;
    setText(usedCell, used === null ? '–' : number(used));
    setText(left, remaining === null ? '–' : number(remaining));
    setText(resetCell, resets === null || resets === 0 ? '–' : duration(resets));
    // Of what the limit can allow at once: a burst may be below its n, or above.
    const capacity = remaining === null ? n : (used ?? 0) + remaining;
    fill.style.width = `${Math.min(100, (100 * (used ?? 0)) / Math.max(capacity, 1))}%`;
    row.className = remaining === 0 ? 'limited' : '';
  });
}
