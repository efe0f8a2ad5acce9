// The operators' web page: descriptors as text, `key=value,key2=value2`; whether a control (a block, an allow or a
// limit) matches one; and which values weir shows as hashes, so that the URLs of the page do not have them.

const escaped = text => text.replace(/[\\,]/g, '\\$&');

/** Writes entries as commands and URLs have them. A value with bytes has its backslashes escaped already. */
const descriptorText = entries => entries.map(entry => `${escaped(entry.key)}=${entry.escaped ? entry.value.replaceAll(',', '\\,') : escaped(entry.value)}`).join(',');

/** Reads entries; null if a text is no descriptor. The first `=` of an entry ends its key. */
function readDescriptor(text) {
  const parts = [''];
  for (const [piece] of text.matchAll(/,|\\x[0-9a-f]{2}|\\.?|[^\\,]+/gsu)) {
    if (piece === ',') parts.push('');
    else if (piece === '\\,') parts[parts.length - 1] += ',';
    else if (piece[0] !== '\\' || piece === '\\\\' || piece.length === 4) parts[parts.length - 1] += piece;
    else return null;
  }
  const entries = parts.map(part => {
    const [, key, value] = part.match(/^([^=]+)=(.*)$/s) ?? [];
    const isEscaped = /^(?:[^\\]|\\\\)*\\x/s.test(value);
    const plain = shown => shown?.replaceAll('\\\\', '\\');
    return isEscaped ? { key: plain(key), value, escaped: true } : { key: plain(key), value: plain(value) };
  });
  return entries.every(({ key }) => key) ? entries : null;
}

/** Returns whether a control matches a descriptor. */
function isMatched({ domain: wanted, entries: needed, exact, text }, domain, entries) {
  if (wanted !== '*' && wanted !== domain) return false;
  if (exact && needed.length !== entries.length) return false;
  const has = ({ key, value }, entry) => entry && entry.key === key && matchesValue(value, entry.value, text);
  return needed.every((entry, i) => (exact ? has(entry, entries[i]) : entries.some(other => has(entry, other))));
}

/** Returns whether the value of a control matches that of an entry: a network its addresses, unless `isText`. */
function matchesValue(pattern, value, isText) {
  const network = isText ? null : readNetwork(pattern);
  if (!network) return matchesPattern(pattern, value);
  const other = networkOfValue(value);
  return other !== null && containsNetwork(network, other);
}

/** Returns whether something may match the value of a control and that of a rule, which may be a pattern, a network or a list. */
function mayMeet(value, rule, isText) {
  if (rule === '' || rule.includes('*') || rule.startsWith('@') || matchesValue(value, rule, isText)) return true;
  const [outer, inner] = [readNetwork(rule) ?? networkOf(rule), networkOfValue(value)];
  if (!outer) return false;
  return inner ? containsNetwork(outer, inner) : value.includes('*') && rule.includes('/');
}

/** A `*` in a pattern is any text. Without regular expressions: a pattern with many `*` must not take long. */
function matchesPattern(pattern, text) {
  const [first, ...rest] = pattern.split('*');
  if (!rest.length) return pattern === text;
  const last = rest.pop();
  if (!text.startsWith(first) || !text.endsWith(last) || text.length < first.length + last.length) return false;
  let [at, end] = [first.length, text.length - last.length];
  for (const part of rest) {
    const found = text.indexOf(part, at);
    if (found < 0 || found + part.length > end) return false;
    at = found + part.length;
  }
  return true;
}

/** The keys whose values weir shows as hashes (`top.redact`); null: not known before the first status. */
let redactedKeys = null;
/** Values of these keys that someone wrote here, by what stands for them: they are in no address. */
const writtenValues = new Map();
/** Names of another load of this page stand for nothing here. */
const firstName = Math.floor(Math.random() * 1e9);

const isHash = value => /^hash:(?:[0-9a-f]+|\?\d+)$/.test(value);
/** Whether the value of an entry is not the one that clients send. Before the keys are known, any hash may be one. */
const isHidden = ({ key, value }) => (redactedKeys?.has(key) ?? true) && isHash(value);

/** Returns what stands for the value of a key that weir hides. */
function hiddenValue(value) {
  if (value === '' || isHash(value)) return value;
  const known = [...writtenValues].find(([, written]) => written === value)?.[0];
  const name = known ?? `hash:?${firstName + writtenValues.size}`;
  writtenValues.set(name, value);
  return name;
}

/** Replaces the values of keys that weir hides, also if their names are written in another case. */
const hideValues = entries => entries.map(entry => ([...redactedKeys ?? []].some(key => key.toLowerCase() === entry.key.toLowerCase()) ? { ...entry, value: hiddenValue(entry.value) } : entry));

/** Puts the written values back. */
const revealValues = entries => entries.map(entry => ({ ...entry, value: writtenValues.get(entry.value) ?? entry.value }));
