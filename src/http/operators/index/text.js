// The operators' web page: formats numbers, times, keys and limits as text.

const fraction = new Intl.NumberFormat('en-US', { maximumFractionDigits: 1 });

/** A number a second: exact enough to see one in ten seconds. */
function rate(value) {
  return value > 0 && value < 0.05 ? '<0.1' : value < 9.95 ? fraction.format(value) : grouped.format(value);
}

function percent(share) {
  const value = share * 100;
  if (value > 0 && value < 0.01) return `<0.01${NBSP}%`;
  return `${value.toFixed(value >= 9.95 || value === 0 ? 0 : value >= 0.995 ? 1 : 2)}${NBSP}%`;
}

/** A duration with its largest units. */
function duration(ms, parts = 2) {
  const seconds = Math.max(0, Math.ceil(ms / 1000));
  const units = [['y', 31536000], ['d', 86400], ['h', 3600], ['min', 60], ['s', 1]];
  const first = units.findIndex(([, length]) => seconds >= length);
  if (first < 0) return `0${NBSP}s`;
  let rest = seconds;
  const texts = [];
  for (const [unit, length] of units.slice(first, first + parts)) {
    const count = Math.floor(rest / length);
    rest -= count * length;
    if (count) texts.push(`${count}${NBSP}${unit}`);
  }
  return texts.join(' ');
}

/** The time of day where the browser is, of a time as RFC 3339 has it or in milliseconds. */
const timeOfDay = time => new Date(time).toTimeString().slice(0, 8);

/** The day there, as `2026-11-27`. */
const dayOf = time => new Date(time).toLocaleDateString('sv-SE');
const isToday = time => dayOf(time) === dayOf(Date.now());

/** The zone of its times: `UTC+1`. */
function zone(time = Date.now()) {
  const minutes = -new Date(time).getTimezoneOffset();
  const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
  return `UTC${minutes ? `${minutes < 0 ? '−' : '+'}${hours}${rest ? `:${rest}` : ''}` : ''}`;
}

/** A time, with the day if it is not today. */
const moment = time => (isToday(time) ? timeOfDay(time) : `${dayOf(time)} ${timeOfDay(time).slice(0, 5)}`);

const shortDay = new Intl.DateTimeFormat('en-US', { month: 'short', day: 'numeric' });

/** The time of day of milliseconds in that many characters, with a short day before it if it is not today. */
function dayAndTime(ms, length = 8) {
  return isToday(ms) ? timeOfDay(ms).slice(0, length) : `${shortDay.format(ms).replace(' ', NBSP)} ${timeOfDay(ms).slice(0, 5)}`;
}

/** As `visible`. A long text loses its middle. */
function shortened(text, start = 80, end = 30) {
  const chars = [...text];
  if (chars.length <= start + end + 10) return visible(text);
  return `${visible(chars.slice(0, start).join(''))}…${visible(chars.slice(-end).join(''))}`;
}

const code = text => make('code', '', shortened(text));

/** A key as `domain key=value,key=value`. */
function keyText(domain, entries) {
  const list = entries.map(({ key, value }) => (value === '' ? key : `${key}=${value}`)).join(',');
  return list ? `${domain} ${list}` : domain;
}

/** A key, its values emphasized; without its domain if that is empty. */
function keyElement(domain, entries) {
  const element = make('code', '');
  element.append(shortened(domain, 40, 10));
  entries.forEach(({ key, value }, i) => {
    element.append(i ? ', ' : domain ? ' ' : '', shortened(key, 30, 10));
    if (value !== '') element.append('=', make('wbr', ''), make('b', '', shortened(value)));
  });
  return element;
}

/** Whom a block spares: ` except plan=partner`; null for nobody. */
const exceptText = ({ except = [] }) => (except.length ? ` except ${except.map(({ key, value }) => shortened(`${key}=${value}`)).join(', ')}` : null);

/** A limit in short: `10 per minute, gcra, burst 20`. */
function limitText(limit) {
  const { requests_per_unit: n, unit, unit_multiplier: times, algorithm, burst, name } = limit;
  const period = unit ? ` per ${times > 1 ? `${times} ${unit}s` : unit}` : ' at once';
  let text = `${name ? `${name}: ` : ''}${number(n)}${period}`;
  if (algorithm !== 'fixed_window') text += `, ${algorithm}`;
  if (burst !== undefined && burst !== null && burst !== n) text += `, burst ${number(burst)}`;
  return visible(text);
}
