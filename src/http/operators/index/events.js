// The lists of events and denials.

const MAX_EVENTS = 100;
/** The shortest time between denials that are shown: they can be read. */
const DENIAL_MS = 500;
const BADGES = { added: 'good', loaded: 'good', up: 'good', solved: 'good', rejected: 'bad', down: 'bad', problem: 'bad', problems: 'bad' };

/** A list of rows, the newest first. */
class Feed {
  /** Each with its time, what it is about, and whether this page made it up. */
  rows = [];
  constructor(name) {
    this.list = byId(`${name}-rows`);
    this.none = byId(`no-${name}s`);
  }

  add(row) {
    this.rows.unshift(row);
    this.list.prepend(row.element);
    for (const old of this.rows.splice(MAX_EVENTS)) old.element.remove();
    show(this.none, false);
  }

  /** Adds rows of the past, the newest first, in place of those that came as events since. */
  fill(past) {
    const newest = past[0]?.at ?? -Infinity;
    const kept = this.rows.filter(row => row.isOwn || row.at > newest);
    this.rows = [...kept, ...past].sort((a, b) => b.at - a.at).slice(0, MAX_EVENTS);
    this.list.replaceChildren(...this.rows.map(row => row.element));
    show(this.none, this.rows.length === 0);
  }
}

const changes = new Feed('change');
const denials = new Feed('denial');
/** When the last denial was shown, and how many were not since. */
let [denialShownAt, denialsHidden] = [0, 0];

/** The time of the server. */
const serverNow = () => (status ? Date.parse(status.at) + Date.now() - statusAt : Date.now());

function eventElement(at, badge, texts) {
  const time = make('time', '', dayAndTime(at));
  time.dateTime = new Date(at).toISOString();
  const label = badge && make('span', '', make('span', `badge ${BADGES[badge] ?? ''}`, badge));
  return make('li', '', time, label, make('span', '', ...texts));
}

function changeRow(at, badge, ...texts) {
  return { at, element: eventElement(at, badge, texts) };
}

/** Adds what this page has found out. */
function addEvent(badge, ...texts) {
  changes.add({ ...changeRow(serverNow(), badge, ...texts), isOwn: true });
}

function denialRow({ at, domain, entries, cut, rule, limit, control, retry_ms: retry }, hidden) {
  const why = control && !limit ? `blocked by ${shortened(control)}` : limit ? `over ${shortened(limit)}` : 'over its limit';
  const notes = [why, rule && shortened(rule), retry === null ? '' : `retry in ${duration(retry)}`, hidden ? `${number(hidden)} not shown before it` : ''];
  const texts = [keyLink(domain, { entries, cut }), make('span', 'note', notes.filter(Boolean).join(', '))];
  const time = Date.parse(at);
  return { at: time, domain, entries, cut, rule, element: eventElement(time, null, texts) };
}

function addDenial(denial) {
  const now = performance.now();
  denialsHidden += denial.suppressed;
  if (now - denialShownAt < DENIAL_MS) {
    denialsHidden += 1;
    return;
  }
  denials.add(denialRow(denial, denialsHidden));
  [denialShownAt, denialsHidden] = [now, 0];
}

function reloadRow({ at, what, ok, error, summary, changes: changed }) {
  const time = Date.parse(at);
  if (!ok) return changeRow(time, 'rejected', `${rejectedText(what)}; those before stay active.`, make('pre', '', error.split('\n').map(visible).join('\n')));
  const lines = changed && changed.list.map(visible).join('\n');
  return changeRow(time, 'loaded', `Rules: ${counted(summary.rules, 'rule')} in ${counted(summary.domains, 'domain')}.`, lines ? make('pre', '', lines) : null);
}

const rejectedText = what => `The ${what === 'overlay' ? 'overlay is' : 'rules are'} rejected`;

function storeText({ up, error }) {
  return up ? 'The store answers.' : `The store does not answer${error ? `: ${shortened(error, 200, 50)}` : ''}.`;
}

function problemsRow({ at, problems: list }) {
  const time = Date.parse(at);
  if (!list.length) return changeRow(time, 'solved', NO_PROBLEM);
  const lines = list.map(problem => make('div', '', problemText(problem)));
  return changeRow(time, list.length === 1 ? 'problem' : 'problems', ...lines);
}

const PAST_ROWS = {
  reload: reloadRow,
  problems: problemsRow,
  store: event => changeRow(Date.parse(event.at), event.up ? 'up' : 'down', storeText(event)),
  controls: event => changeRow(Date.parse(event.at), 'changed', 'Controls changed.'),
};

/** Shows the events and denials of a history. */
async function fillEvents({ events: before, denials: denied }) {
  const opened = serverNow() - performance.now();
  // What has changed in controls since the page was opened, it has found out in full.
  const rows = before.filter(({ event, at }) => Object.hasOwn(PAST_ROWS, event) && !(event === 'controls' && Date.parse(at) > opened));
  changes.fill(rows.reverse().slice(0, MAX_EVENTS).map(event => PAST_ROWS[event.event](event)));
  const shown = [];
  for (const [i, denial] of denied.reverse().slice(0, MAX_EVENTS).entries()) {
    if (i % 25 === 0) await pause();
    shown.push(denialRow(denial, denial.suppressed));
  }
  denials.fill(shown);
  for (const list of ['change', 'denial']) setText(byId(`no-${list}s`), 'None yet.');
}
