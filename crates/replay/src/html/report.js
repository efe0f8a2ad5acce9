// Draws the report of `weir replay --output html` in a browser, from the JSON of `--output json` in the page. Names and
// keys come from clients and files: they become texts, never markup.

const MINUTE = 60000, HOUR = 60 * MINUTE, DAY = 24 * HOUR;
/** Distances of ticks on the time axis, in milliseconds and in months. */
const STEPS = [1, 2, 5, 10, 15, 30].flatMap(n => [n * 1000, n * MINUTE]).concat([1, 2, 3, 6, 12].map(n => n * HOUR), [1, 2, 4, 7, 14].map(n => n * DAY)).sort((a, b) => a - b);
const MONTHS = [1, 2, 3, 6, 12, 24, 60, 120, 240];
/** The most ticks of a plot, bars of a small plot, and rules whose keys are shown without a click. */
const MAX_TICKS = 8, MAX_SMALL_STEPS = 72, MAX_OPEN = 5;
/** The least height of a bar that is not 0, in percent: one denied request of a million is seen. */
const LEAST = 1.4;

const { traffic, rules: today, comparison, series } = JSON.parse(byId('data').textContent, (_, value) => (typeof value === 'string' ? visible(value) : value));
const { requests } = traffic;
const [first, last] = [traffic.first, traffic.last].map(Date.parse);
const start = Date.parse(series.start), width = series.bucket_seconds * 1000;

// Numbers and names.

const compact = new Intl.NumberFormat('en-US', { notation: 'compact' });
const code = text => make('code', '', text);
const note = (...children) => make('span', 'note', ...children);
const hint = (...children) => make('p', 'hint', ...children);
const anchor = (id, text) => Object.assign(make('a', '', text), { href: `#${id}` });
const sum = values => values.reduce((total, value) => total + value, 0);
/** Text in which a narrow page does not break the options. */
const prose = text => text.split(/(--[a-z-]{1,20}(?![a-z-]))/).map(part => (part.startsWith('--') ? make('span', 'word', part) : part));

/** A share in percent. Neither a few nor all but a few are rounded to none or all. */
function percent(share) {
  const value = share * 100;
  const text = value > 0 && value < 0.01 ? 'under 0.01' : value > 99.99 && value < 100 ? 'over 99.99' : value.toFixed(2);
  return `${text} %`.replaceAll(' ', NBSP);
}

// Times.

const day = ms => new Date(ms).toISOString().slice(0, 10);
const clock = (ms, length = 5) => new Date(ms).toISOString().slice(11, 11 + length);
const isOneDay = traffic.first !== null && day(first) === day(last);
const monthText = (ms, format) => new Date(ms).toLocaleDateString('en-US', { month: 'short', timeZone: 'UTC', ...format });

/** A time of these parts. A narrow page breaks only between them. */
function time(ms, ...parts) {
  const element = make('time', '', ...parts.flatMap((part, i) => [i ? ' ' : null, make('span', '', part)]));
  element.dateTime = new Date(ms).toISOString();
  return element;
}

/** A minute, with its day if the traffic is of several. */
const minute = ms => time(ms, ...(isOneDay ? [] : [day(ms)]), `${clock(ms)}${NBSP}UTC`);

/** The time of the traffic: `On 2026-11-22 from 10:05 to 14:05 UTC`. */
function range() {
  // Less than a few minutes would be rounded too much.
  const [from, to] = [first, last].map(ms => clock(ms, last - first < 10 * MINUTE ? 8 : 5));
  const until = `${to}${NBSP}UTC`;
  if (!isOneDay) return ['From ', time(first, day(first), from), ' to ', time(last, day(last), until)];
  if (from === to) return ['At ', time(first, day(first), until)];
  return ['On ', time(first, day(first)), ' from ', time(first, from), ' to ', time(last, until)];
}

/** A width of time as what something happens per: `minute`, `5 minutes`. */
function per(ms) {
  const [noun, unit] = [['day', DAY], ['hour', HOUR], ['minute', MINUTE], ['second', 1000]].find(([, unit]) => ms % unit === 0);
  return ms === unit ? noun : `${ms / unit} ${noun}s`;
}

/** How long something took, in one or two units: `6 h 30 min`. */
function duration(ms) {
  const units = [['d', DAY], ['h', HOUR], ['min', MINUTE], ['s', 1000]];
  const at = units.findIndex(([, unit]) => ms >= unit);
  if (at < 0) return 'less than a second';
  const [[name, unit], next] = units.slice(at);
  const rest = next ? Math.floor((ms % unit) / next[1]) : 0;
  return `${number(Math.floor(ms / unit))}${NBSP}${name}${rest ? ` ${rest}${NBSP}${next[0]}` : ''}`;
}

/** Round times between two, or the first of the two if none is round. */
function roundTimes(from, to) {
  const times = [];
  const step = STEPS.find(step => (to - from) / step < MAX_TICKS);
  if (step) {
    for (let at = Math.ceil(from / step) * step; at <= to; at += step) times.push(at);
  } else {
    const months = MONTHS.find(months => (to - from) / (28 * DAY * months) < MAX_TICKS);
    for (let month = 0; Date.UTC(1970, month) <= to; month += months) if (Date.UTC(1970, month) >= from) times.push(Date.UTC(1970, month));
  }
  return times.length ? times : [from];
}

/** The ticks of all plots. Only the first of a day names it. */
function timeTicks(count) {
  const length = count * width;
  const times = roundTimes(start, start + length);
  const areDays = times.every(at => at % DAY === 0), areMinutes = times.every(at => at % MINUTE === 0);
  return times.map((at, i) => {
    const isNew = i === 0 || day(at) !== day(times[i - 1]);
    return {
      at: (at - start) / length,
      // In a year, no day of the month is there twice.
      text: !areDays ? clock(at, areMinutes ? 5 : 8) : monthText(at, length < 365 * DAY ? { day: 'numeric' } : { year: 'numeric' }),
      day: !areDays && isNew ? monthText(at, { day: 'numeric' }) : '',
      wide: times.length > 4 && i % 2 === 1,
    };
  });
}

// Plots.

const PASSED = ['passed', 'passed', 'passed'], DENIED = ['denied', 'denied', 'denied'];
const count = series.requests.length;
const ticks = count ? timeTicks(count) : [];

/** A series as long as that of requests: the end is missing where it is 0. */
const whole = values => Array.from({ length: count }, (_, i) => values[i] ?? 0);
/** What passed of a series of requests. */
const passed = (all, denied) => all.map((value, i) => Math.max(0, value - (denied[i] ?? 0)));

/** The top of an axis and its steps, round ones. */
function scale(largest, most = 5) {
  for (let power = 1; ; power *= 10) {
    for (const step of [power, 2 * power, 5 * power]) {
      const steps = Math.ceil(largest / step) || 1;
      if (steps <= most) return [step * steps, steps];
    }
  }
}

class CountPlot extends BarPlot {
  constructor(size, title, what, parts, counts, { largest = 0, legend = [] } = {}) {
    super(make('figure', `plot ${size}`), { title, what, parts, count, ticks, legend });
    this.counts = counts;
    const [top, steps] = scale(Math.max(largest, ...Array.from({ length: count }, (_, i) => sum(Object.values(this.at(i))))));
    this.draw(i => this.at(i), top, { text: value => (value < 1e6 ? number(value) : compact.format(value)), steps, least: LEAST });
    this.area.ariaValueText = this.describe(0);
  }

  at(i) {
    return Object.fromEntries(Object.entries(this.counts).map(([part, values]) => [part, values[i] ?? 0]));
  }

  describe(reading) {
    const i = count - 1 + reading, at = start + i * width;
    const texts = this.parts.map(([part, , text]) => `${number(this.counts[part][i] ?? 0)} ${text}`);
    return `${day(at)}${width % DAY ? ` ${clock(at, width % MINUTE ? 8 : 5)}` : ''}: ${texts.reverse().join(', ')}`;
  }
}

/** How many steps of the series one of a small plot has: a round width of time mostly. */
const merged = [1, 2, 3, 4, 6, 12].find(n => count / n <= MAX_SMALL_STEPS) ?? Math.ceil(count / MAX_SMALL_STEPS);

/** A small plot without axes. */
function smallPlot(rule) {
  const steps = Math.ceil(count / merged);
  const [all, denied] = [rule.series, rule.denied.series].map(values => Array.from({ length: steps }, (_, i) => sum(values.slice(i * merged, (i + 1) * merged))));
  const parts = [['denied', rule.shadow ? 'shadow' : 'denied'], PASSED];
  const bars = passed(all, denied).map((value, i) => ({ passed: value, denied: denied[i] }));
  const paths = barPaths(parts, steps, i => bars[i], Math.max(1, ...all), LEAST);
  const picture = svg('svg', { viewBox: `0 0 ${steps} 100`, preserveAspectRatio: 'none', role: 'img' });
  const title = svg('title', {});
  title.textContent = `Over time: up to ${counted(Math.max(...all), 'request')} and ${number(Math.max(...denied))} denied per ${per(merged * width)}`;
  picture.append(title, ...parts.filter(([part]) => paths[part]).map(([part, className]) => svg('path', { class: className, d: paths[part] })), svg('path', { class: 'base', d: `M0 100H${steps}` }));
  return picture;
}

// Tables.

const links = [];

function section(id, title, link) {
  const heading = make('h2', '', ...title);
  heading.id = `${id}-h`;
  const element = make('section', '', heading);
  element.id = id;
  element.setAttribute('aria-labelledby', heading.id);
  if (link) links.push([id, link]);
  document.querySelector('main').append(element);
  return element;
}

function th(scope, className, ...children) {
  const element = make('th', className, ...children);
  element.scope = scope;
  return element;
}

/** A table with a caption and columns, each a class and a title. Returns it and its body. */
function table(className, caption, columns) {
  const body = make('tbody', '');
  const heads = columns.map(([className, ...title]) => (title.length ? th('col', className, ...title) : make('td', className)));
  return [make('table', className, make('caption', '', ...caption), make('thead', '', make('tr', '', ...heads)), body), body];
}

/** Names with their numbers, as bars. `total` is what these add up to with those that are not listed. */
function bars(caption, [name, count], rows, total) {
  const [element, body] = table('bars', [caption], [['', name], ['n', count]]);
  const largest = Math.max(1, ...rows.map(([, value]) => value));
  for (const [text, value] of rows) {
    const bar = make('i', '');
    bar.style.width = `${((100 * value) / largest).toFixed(2)}%`;
    body.append(make('tr', '', th('row', '', make('div', '', make('span', '', code(text)), make('span', 'bar', bar))), make('td', 'n', `${number(value)} `, note(percent(value / Math.max(1, total))))));
  }
  return element;
}

const keyCount = denied => `${denied.keys_are_complete ? '' : 'at least '}${number(denied.keys)}`;
const keysText = denied => `${keyCount(denied)}${NBSP}key${denied.keys === 1 ? '' : 's'}`;

/** The keys with most denied requests. */
function worstKeys(caption, title, denied) {
  const rows = denied.worst_keys.map(({ key, requests: value }) => [key, value]);
  const [keys, others] = [denied.keys - rows.length, denied.requests - sum(rows.map(([, value]) => value))];
  const rest = !denied.keys_are_complete
    ? hint('There were more keys than are counted separately: some that were denied may be missing.')
    : keys > 0 && others > 0 ? hint(`${counted(keys, 'more key')} with ${counted(others, 'request')} together.`) : null;
  return [bars(caption, ['Key', title], rows, denied.requests), rest].filter(Boolean);
}

/** The worst minute, and how many requests were denied in it. */
function worstMinute({ worst_minute: worst }) {
  if (!worst) return ['none'];
  return [minute(Date.parse(worst.start)), ...(worst.requests > 1 ? [' ', note(`${number(worst.requests)} denied`)] : [])];
}

// The parts of the page.

function showHeadline() {
  const { denied } = today;
  byId('source').append(code(traffic.name), ' with the rules ', code(today.files));
  if (!requests) {
    byId('headline').append('No requests to replay.');
    return byId('headline').after(make('p', '', ...whyEmpty()));
  }
  const of = counted(requests, 'request');
  document.title = `weir replay: ${percent(denied.share)} of ${of} denied`;
  const result = denied.requests ? make('strong', '', `${number(denied.requests)} of ${of} (${percent(denied.share)})`) : `none of ${of}`;
  byId('headline').append(...range(), ', ', comparison && today.files.length <= 60 ? code(today.files) : 'these limits', ' would have denied ', result, '.');
  const header = document.querySelector('header');
  if (comparison) {
    const { rules: other, newly_denied: newly, no_longer_denied: freed } = comparison;
    header.append(make('p', 'lead', code(other.files), ` would have denied ${number(other.denied.requests)} (${percent(other.denied.share)}). It denies ${counted(newly.total.requests, 'request')} that `, code(today.files), ` lets pass, and lets ${number(freed.total.requests)} pass that `, code(today.files), ' denies.'));
  }
  const { worst_minute: worst } = denied;
  const denying = today.rules.filter(rule => rule.denied.requests && !rule.shadow).length;
  const tiles = [
    ['Denied', percent(denied.share), counted(denied.requests, 'request')],
    worst
      ? ['Worst minute', time(Date.parse(worst.start), `${clock(Date.parse(worst.start))}${NBSP}UTC`), ...(isOneDay ? [] : ['on ', time(Date.parse(worst.start), day(Date.parse(worst.start))), ', ']), `${number(worst.requests)} denied${isOneDay ? ' in this minute' : ''}`]
      : ['Worst minute', 'none', 'no request was denied'],
    ['Keys denied', keyCount(denied)],
    ['Rules that deny', `${today.more_rules && denying === today.rules.length ? 'at least ' : ''}${number(denying)}`, `of ${counted(today.rules.length + (today.more_rules ?? 0) + today.unused_rules, 'rule')}`],
  ];
  header.append(make('dl', `tiles${denied.requests ? ' denying' : ''}`, ...tiles.map(([title, value, ...text]) => make('div', '', make('dt', '', title), make('dd', '', make('b', '', value), ' ', make('span', '', ...text))))));
}

function showContents() {
  const list = make('ul', '', ...links.map(([id, title]) => make('li', '', anchor(id, title))));
  const contents = make('nav', '', list);
  contents.ariaLabel = 'Contents';
  document.querySelector('header').after(contents);
}

function showOverTime() {
  const { denied } = today, over = whole(denied.series);
  const element = section('time', ['Over time'], 'Over time');
  element.append(new CountPlot('tall', `Requests per ${per(width)}`, 'Requests over time', [DENIED, PASSED], { denied: over, passed: passed(series.requests, over) }, { legend: denied.requests ? ['passed', 'denied'] : [] }).root);
  if (denied.requests) {
    const plot = new CountPlot('short', `Denied per ${per(width)}, on its own scale`, 'Denied requests over time', [DENIED], { denied: over });
    markWorst(plot, denied.worst_minute);
    element.append(plot.root);
  }
  const [numbers, body] = table('', [`Requests per ${per(width)}`], [['', 'From (UTC)'], ['n', 'Requests'], ['n', 'Denied']]);
  series.requests.forEach((value, i) => {
    const at = start + i * width;
    body.append(make('tr', '', th('row', '', `${day(at)}${width % DAY ? ` ${clock(at, width % MINUTE ? 8 : 5)}` : ''}`), make('td', 'n', number(value)), make('td', 'n', number(over[i]))));
  });
  element.append(make('details', 'series', make('summary', '', 'The numbers of these plots'), numbers));
}

/** Marks the worst minute. A mark on the only bar says nothing, and neither does one of many minutes with one request. */
function markWorst(plot, worst) {
  if (count < 2 || !(worst?.requests > 1)) return;
  const at = Date.parse(worst.start), end = start + count * width;
  const mark = make('span', 'mark');
  const [from, to] = [Math.max(at, start), Math.min(at + MINUTE, end)].map(ms => (100 * (ms - start)) / (end - start));
  Object.assign(mark.style, { left: `${from}%`, width: `${to - from}%` });
  plot.area.append(mark);
  plot.readout.before(make('span', 'legend', make('span', '', make('i', 'mark'), 'worst minute ', minute(at), `: ${number(worst.requests)}${NBSP}denied`)), ' ');
}

function showComparison() {
  const { rules: other, newly_denied: newly, no_longer_denied: freed } = comparison;
  const element = section('comparison', ['Compared with ', code(other.files)], 'Comparison');
  const [sides, body] = table('sides', [`The same ${counted(requests, 'request')} with each set of rules`], [[''], ['n', code(today.files)], ['n', code(other.files)]]);
  for (const [title, value] of [
    ['Denied', side => [number(side.denied.requests)]],
    ['Share', side => [percent(side.denied.share)]],
    ['Worst minute', side => worstMinute(side.denied)],
    ['Keys denied', side => [keyCount(side.denied)]],
    ['Rules with requests', side => [number(side.rules.length + (side.more_rules ?? 0))]],
    ['Rules without requests', side => [number(side.unused_rules)]],
    ['Descriptors without a rule', side => [number(side.unmatched_descriptors)]],
  ]) body.append(make('tr', '', th('row', '', title), ...[today, other].map(side => make('td', 'n', ...value(side)))));
  // One scale for both plots.
  const largest = Math.max(0, ...newly.total.series, ...freed.total.series);
  const [now, then] = [code(today.files), code(other.files)].map(name => () => name.cloneNode(true));
  element.append(sides, make('div', 'columns',
    difference('newly', 'Newly denied', 'denied', newly, ['pass with ', now(), ' and are denied with ', then()], largest),
    difference('no-longer', 'No longer denied', 'freed', freed, ['are denied with ', now(), ' and pass with ', then()], largest)));
}

function difference(id, title, className, { total, rules, more_rules: more }, meaning, largest) {
  const heading = make('h3', '', title);
  heading.id = `${id}-h`;
  const element = make('section', `${className}-side`, heading);
  element.setAttribute('aria-labelledby', heading.id);
  if (!total.requests) {
    element.append(make('p', '', 'No requests ', ...meaning, '.'));
    return element;
  }
  const worst = total.worst_minute?.requests > 1 ? [' The worst minute is ', minute(Date.parse(total.worst_minute.start)), ` with ${number(total.worst_minute.requests)}.`] : [];
  element.append(
    make('p', '', make('strong', '', counted(total.requests, 'request')), ` (${percent(total.share)}) of ${keysText(total)} `, ...meaning, '.', ...worst),
    new CountPlot('short', `${title} per ${per(width)}`, `${title} over time`, [['count', className, title.toLowerCase()]], { count: whole(total.series) }, { largest }).root,
    bars('By the rule that denies', ['Rule', 'Requests'], rules.map(({ name, requests: value }) => [name, value]), total.requests));
  if (more) element.append(hint(`And ${counted(more, 'more rule')}.`));
  if (total.worst_keys.length) element.append(...worstKeys('Keys with most of them', 'Requests', total));
  return element;
}

function showRules(id, side, maxOpen) {
  const name = comparison ? `Rules of ${side.files.length > 40 ? `${side.files.slice(0, 40)}…` : side.files}` : 'Rules';
  const element = section(id, comparison ? ['Rules of ', code(side.files)] : ['Rules'], name);
  if (!side.rules.length) element.append(make('p', '', 'No rule has requests.'));
  else element.append(rulesTable(side.rules));
  if (side.more_rules) element.append(hint(`${counted(side.more_rules, 'more rule')} with requests: `, make('code', 'word', '--output json'), ' lists them all.'));
  if (side.rules.some(rule => rule.shadow)) element.append(hint(make('span', 'badge', 'shadow'), ' The rule counts and reports, but lets every request pass: its numbers are what it would deny if it were enforced.'));
  if (side.unused_rules) element.append(hint(`${counted(side.unused_rules, 'rule')} without requests.`));
  const withKeys = side.rules.filter(rule => rule.denied.worst_keys.length);
  if (withKeys.length) element.append(make('h3', '', 'Worst keys of each rule'));
  withKeys.forEach((rule, i) => {
    const text = rule.shadow ? 'would be denied' : 'denied';
    const summary = make('summary', '', code(rule.name), ' ', note(`${number(rule.denied.requests)} ${text}, ${keysText(rule.denied)}`));
    const details = make('details', rule.shadow ? 'shadow-side' : '', summary, ...worstKeys('Keys denied most by this rule', rule.shadow ? 'Would be denied' : 'Denied', rule.denied));
    details.open = i < maxOpen;
    element.append(details);
  });
}

function rulesTable(rules) {
  const titles = ['Rule', 'Requests', 'Denied', 'Share', 'Worst minute', 'Over time'];
  const caption = [`Rules with requests, most denied first. The small plots show requests per ${per(merged * width)}, with `, make('span', 'denied-text', 'those denied'), ' in front.'];
  const [element, body] = table('rules', caption, titles.map((title, i) => [i > 0 && i < 4 ? 'n' : '', title]));
  for (const rule of rules) {
    const { denied } = rule;
    const head = th('row', '', code(rule.name), rule.shadow ? ' ' : null, rule.shadow ? make('span', 'badge', 'shadow') : null, make('span', 'place', rule.limits), make('span', 'note place', rule.origin.replace(/(:\d+):\d+$/, '$1')));
    const values = [[number(rule.requests)], [number(denied.requests), ...(rule.shadow && denied.requests ? [' ', note('would be')] : []), ...(rule.bans === undefined ? [] : [' ', note(counted(rule.bans, 'ban'))])], [percent(denied.share)], worstMinute(denied)];
    const cells = values.map((value, i) => {
      const cell = make('td', i < 3 ? 'n' : '', make('span', '', ...value));
      cell.dataset.label = titles[i + 1];
      return cell;
    });
    body.append(make('tr', denied.requests ? '' : 'none', head, ...cells, make('td', 'small', smallPlot(rule))));
  }
  // A narrow page shows rows as cards, which takes the roles of a table away.
  for (const [tags, role] of [['table', 'table'], ['thead, tbody', 'rowgroup'], ['tr', 'row'], ['thead th', 'columnheader'], ['tbody th', 'rowheader'], ['td', 'cell']]) {
    for (const part of [element, ...element.querySelectorAll(tags)]) if (part.matches(tags)) part.role = role;
  }
  return element;
}

function showAllKeys() {
  const denying = today.rules.filter(rule => rule.denied.requests && !rule.shadow);
  if (!today.denied.worst_keys.length || denying.length < 2) return;
  section('keys', ['Worst keys of all rules']).append(...worstKeys('Keys denied most', 'Denied', today.denied));
}

function whyEmpty() {
  if (!traffic.lines) return [code(traffic.name), ' has no lines.'];
  const reasons = [
    traffic.invalid ? `${counted(traffic.invalid, 'line')} cannot be read` : '',
    traffic.without_descriptors ? `${counted(traffic.without_descriptors, 'line')} lack a field of every descriptor` : '',
  ].filter(Boolean);
  return [reasons.join(', and ') || `${counted(traffic.lines, 'line')} was read`, ': see ', anchor('traffic', 'what was read'), '.'];
}

function descriptorText({ descriptor, lines_without_it: missing, first_missing_field: field, nearly_distinct: distinct }) {
  const parts = [code(descriptor)];
  if (missing) {
    const lines = requests + traffic.without_descriptors;
    parts.push(' ', make('span', 'note place', missing >= lines ? make('b', 'denied-text', 'no line has its fields') : `${number(missing)} of ${counted(lines, 'line')} lack${missing === 1 ? 's' : ''} a field`, ...(field === null ? [] : [', first missing: ', code(field)])));
  }
  if (distinct) {
    const lines = `${distinct.requests < requests ? 'the first ' : ''}${counted(distinct.requests, 'line')}`;
    parts.push(' ', make('span', 'note place', `${lines}, ${counted(distinct.keys, 'key')}: nearly every request has a counter of its own, so little is denied; has it a port? `, code('|host')));
  }
  return parts;
}

/** The invalid lines by their error: `lines 17, 20`. These have no separators, so that they can be searched for. */
function invalidLines() {
  const lines = new Map();
  for (const { line, error } of traffic.invalid_lines) lines.set(error, [...(lines.get(error) ?? []), line]);
  return make('ul', '', ...[...lines].map(([error, numbers]) => make('li', '', `line${numbers.length > 1 ? 's' : ''} ${numbers.join(', ')}: `, ...prose(error))));
}

function showTraffic() {
  const { concurrency_rules: concurrency, more_concurrency_rules: more = 0 } = traffic;
  const element = section('traffic', ['What was read'], 'What was read');
  const facts = [
    ['Traffic', [code(traffic.name)]],
    ...(requests ? [['Time', [...range(), ` (${duration(last - first)})`]]] : []),
    ['Domain', [code(traffic.domain)]],
    ['Descriptors of each request', ...traffic.descriptors.map(descriptorText), ...(traffic.more_descriptors ? [[`and ${traffic.more_descriptors} more`]] : [])],
  ];
  const sides = comparison ? [today, comparison.rules] : [today];
  const rows = [
    [['Invalid lines'], traffic.invalid, 'They cannot be read, and are missing from all numbers.', ...(traffic.invalid_lines.length ? [' The first:', invalidLines()] : [])],
    [['Lines without a descriptor'], traffic.without_descriptors, 'No descriptor has all its fields in these lines. Envoy sends no rate-limit request then, so they pass. If there are many, compare the names of the fields with the log.'],
    [['Late lines'], traffic.late, ...prose('They are further out of order than --reorder allows, and were decided at the earliest time still allowed, so their decisions may differ from real ones. Raise --reorder, or sort the log by time.')],
    ...sides.map(side => [['Descriptors without a rule', ...(comparison ? [' in ', code(side.files)] : [])], side.unmatched_descriptors, 'Nothing limits these, so they pass.', ...(side.unmatched_example === null ? [] : [' The first is ', code(side.unmatched_example), '. ', make('code', 'word', 'weir explain'), ' shows the closest rule.'])]),
    [['Counters dropped'], traffic.evicted_counters, ...prose('More counters were in use than --max-keys allows, so too few requests were denied. Raise --max-keys.')],
    [['Rules that limit concurrency'], concurrency.length + more, 'A log does not say when requests end, so these deny too much: ', ...concurrency.flatMap((rule, i) => [i ? ', ' : '', code(rule)])],
  ].filter(([, value]) => value > 0);
  const [lines, body] = table('read', ['Lines of the log'], [['', 'What'], ['n', 'Number']]);
  for (const [title, value, ...why] of [[['Lines'], traffic.lines], [['Requests that were decided'], requests], ...rows]) {
    body.append(make('tr', '', th('row', '', ...title, why.length ? make('div', 'why', ...why) : null), make('td', 'n', number(value))));
  }
  element.append(make('dl', 'facts', ...facts.flatMap(([name, ...values]) => [make('dt', '', name), ...values.map(value => make('dd', '', ...value))])), lines);
  if (!traffic.invalid && !traffic.without_descriptors && !traffic.late) element.append(hint('No line was skipped or late.'));
}

showHeadline();
if (requests) {
  showOverTime();
  if (comparison) showComparison();
  showRules('rules', today, MAX_OPEN);
  showAllKeys();
  if (comparison) showRules('other-rules', comparison.rules, 0);
}
showTraffic();
if (requests) showContents();
