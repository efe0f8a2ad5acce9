// The operators' web page: two lists, the newest first: what has changed in weir, and denied requests.

const MAX_EVENTS = 100;
const BADGES = { loaded: 'good', up: 'good', solved: 'good', rejected: 'bad', down: 'bad', lost: 'bad', problem: 'bad', problems: 'bad' };

/** A list of rows, the newest first. */
class Feed {
  /** Each with its time and its element; and, unless this page made it, with its number in weir's log of changes. */
  rows = [];
  constructor(name) {
    this.list = byId(`${name}-rows`);
    this.none = byId(`no-${name}s`);
  }

  add(row) {
    if (row.number !== undefined && this.rows.some(({ number }) => number === row.number)) return;
    this.rows.unshift(row);
    this.list.prepend(row.element);
    for (const old of this.rows.splice(MAX_EVENTS)) old.element.remove();
    show(this.none, false);
  }

  /** Adds rows of the past, the newest first, in place of those that came since. */
  fill(past) {
    const newest = past[0]?.number ?? -Infinity;
    const kept = this.rows.filter(({ number }) => number === undefined || number > newest);
    this.rows = [...kept, ...past].sort((a, b) => b.at - a.at).slice(0, MAX_EVENTS);
    this.list.replaceChildren(...this.rows.map(row => row.element));
    show(this.none, this.rows.length === 0);
  }
}

const changes = new Feed('change');
const denials = new Feed('denial');

/** The time of the server. */
const serverNow = () => (status ? Date.parse(status.at) + Date.now() - statusAt : Date.now());

function eventElement(at, badge, texts) {
  const time = make('time', '', dayAndTime(at));
  time.dateTime = new Date(at).toISOString();
  const label = badge && make('span', '', make('span', `badge ${BADGES[badge] ?? ''}`, badge));
  return make('li', '', time, label, make('span', '', ...texts));
}

/** Adds what this page has found out. */
function addEvent(badge, ...texts) {
  const at = serverNow();
  changes.add({ at, element: eventElement(at, badge, texts) });
}

function denialRow({ at, number: id, domain, entries, cut, rule, limit, control, retry_ms: retry, suppressed: hidden, policy }) {
  const why = control && !limit ? `blocked by ${shortened(control)}` : limit ? `over ${shortened(limit)}` : 'over its limit';
  const notes = [why, rule && `rule ${shortened(rule)}`, policy && `by policy ${policy}`, retry === null ? '' : `retry in ${duration(retry)}`, hidden ? `${number(hidden)} not shown before it` : ''];
  const texts = [keyLink(domain, { entries, cut }), make('span', 'note', notes.filter(Boolean).join(', '))];
  const time = Date.parse(at);
  return { at: time, number: id, domain, entries, cut, rule, element: eventElement(time, null, texts) };
}

function reloadTexts({ what, ok, error, summary, changes: changed }) {
  if (!ok) return ['rejected', `${rejectedText(what)}; those before stay active.`, make('pre', '', error.split('\n').map(visible).join('\n'))];
  const lines = changed && changed.list.map(visible).join('\n');
  return ['loaded', `Rules: ${counted(summary.rules, 'rule')} in ${counted(summary.domains, 'domain')}.`, lines ? make('pre', '', lines) : null];
}

const rejectedText = what => `The ${what === 'overlay' ? 'overlay is' : 'rules are'} rejected`;

/** The store, as sentences about it begin. */
const storeName = () => (status?.store.backends.some(({ kind }) => kind === 'redis') ? 'Redis' : 'The store');

const storeTexts = ({ up, error }) => (up ? ['up', `${storeName()} answers again.`] : ['down', sentence(shortened(error, 200, 50))]);

const emptiedTexts = () => ['lost', 'Redis was emptied: what was counted is lost. Controls are written again.'];

/** What a control does, by what can change. */
function controlFacts({ until, reason, ...control }) {
  return [actionText(control), until ? `until ${moment(until)}` : 'without an end', reason ? `for ${shortened(reason, 80, 20)}` : 'without a reason'];
}

function controlTexts({ change, who, before, after, count }) {
  if (count) return ['changed', `${counted(count, 'control')} at once.`];
  const control = after ?? before;
  const old = before && after ? controlFacts(before) : null;
  const notes = old ? controlFacts(after).flatMap((text, i) => (text === old[i] ? [] : [`now ${text}, before ${old[i]}`])) : controlFacts(control).slice(1);
  const texts = [`${actionText(control)} `, keyElement(control.domain, control.entries), exceptText(control) ?? '', who ? ` by ${shortened(who)}` : ''];
  return [change, ...texts, make('span', 'note', notes.join('; '))];
}

function problemListTexts({ problems: list }) {
  if (!list.length) return ['solved', NO_PROBLEM];
  return [list.length === 1 ? 'problem' : 'problems', ...list.map(problem => make('div', '', problemText(problem)))];
}

const operatorTexts = ({ who, from, action, subject }) => ['operator', `${shortened(who)}: ${action} ${shortened(subject, 120, 40)}`, make('span', 'note', ` from ${shortened(from)}`)];

/** The badge of each kind of change, and what it says. */
const CHANGE_TEXTS = { reload: reloadTexts, problems: problemListTexts, store: storeTexts, emptied: emptiedTexts, control: controlTexts, operator: operatorTexts };

function changeRow(change) {
  const at = Date.parse(change.at);
  const [badge, ...texts] = CHANGE_TEXTS[change.event](change);
  return { at, number: change.number, element: eventElement(at, badge, texts) };
}

/** Whether a change has a row. A write of a control has none: what has changed in the control is listed. */
const hasRow = ({ event, action }) => Object.hasOwn(CHANGE_TEXTS, event) && !(event === 'operator' && action.endsWith(' control'));

/** Shows a change that has just come. */
function receiveChange(change) {
  if (change.event === 'denial') return denials.add(denialRow(change));
  if (hasRow(change)) changes.add(changeRow(change));
  if (change.event === 'reload') readRules();
  // A store that does not answer is a problem, too, which says so.
  if (change.event === 'store' && change.up) announce(`${storeName()} answers again.`);
}

async function fillEvents({ events: before, denials: denied }) {
  changes.fill(before.filter(hasRow).reverse().slice(0, MAX_EVENTS).map(changeRow));
  const shown = [];
  for (const [i, denial] of denied.reverse().slice(0, MAX_EVENTS).entries()) {
    if (i % 25 === 0) await pause();
    shown.push(denialRow(denial));
  }
  denials.fill(shown);
  for (const list of ['change', 'denial']) setText(byId(`no-${list}s`), 'None yet.');
}
