// The operators' web page: reads IP networks, such as 10.0.0.0/8, as weir does, to show which addresses a control (a
// block, an allow or another limit of an operator) matches. A network is the number of bits of its addresses, the
// length of its prefix, and the prefix as a number. IPv4-mapped IPv6 is IPv4.

/** Reads an IPv4 address as a number; null if a text is none. */
function readIpv4(text) {
  const parts = /^(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})$/.exec(text)?.slice(1);
  if (!parts || parts.some(part => Number(part) > 255 || (part.length > 1 && part[0] === '0'))) return null;
  return parts.reduce((bits, part) => bits * 256n + BigInt(part), 0n);
}

/** Reads an IPv6 address as a number; null if a text is none. */
function readIpv6(text) {
  if (text.length > 45) return null;
  const last = text.lastIndexOf(':') + 1;
  const ipv4 = last > 0 && text.includes('.') ? readIpv4(text.slice(last)) : null;
  const hex = ipv4 === null ? text : `${text.slice(0, last)}${(ipv4 >> 16n).toString(16)}:${(ipv4 & 0xffffn).toString(16)}`;
  const [head, tail, ...more] = hex.split('::').map(half => (half === '' ? [] : half.split(':')));
  const open = 8 - head.length - (tail?.length ?? 0);
  if (more.length || (tail ? open < 1 : open !== 0)) return null;
  const groups = [...head, ...Array(open).fill('0'), ...(tail ?? [])];
  if (!groups.every(group => /^[\da-f]{1,4}$/i.test(group))) return null;
  return groups.reduce((bits, group) => bits * 65536n + BigInt(`0x${group}`), 0n);
}

/** Returns the network of an address, of its whole length unless one is given; null if there is none. */
function networkOf(address, length = null) {
  const ipv4 = readIpv4(address);
  const bits = ipv4 ?? readIpv6(address);
  const size = ipv4 === null ? 128 : 32;
  if (bits === null || (length !== null && !/^(?:0|[1-9]\d{0,2})$/.test(length))) return null;
  const open = size - Number(length ?? size);
  if (open < 0) return null;
  const prefix = bits >> BigInt(open);
  const network = { size, length: size - open, prefix, hasHostBits: prefix << BigInt(open) !== bits };
  const mapped = network.length - 96;
  if (mapped < 0 || prefix >> BigInt(mapped) !== 0xffffn) return network;
  return { ...network, size: 32, length: mapped, prefix: prefix - (0xffffn << BigInt(mapped)) };
}

/** Reads the network that the value of a control is; null for other texts, also for an address alone. */
function readNetwork(text) {
  const at = text.indexOf('/');
  const network = at < 0 ? null : networkOf(text.slice(0, at), text.slice(at + 1));
  return network?.hasHostBits ? null : network;
}

/** Reads what a request sends: an address, also with brackets, a port or a zone, or a network; null for others. */
function networkOfValue(text) {
  const at = text.indexOf('/');
  if (at >= 0) return networkOf(text.slice(0, at), text.slice(at + 1));
  const [, inner, port] = /^\[([^\]]*)\](?::(\d+))?$/.exec(text) ?? /^([^:]*\.[^:]*):(\d+)$/.exec(text) ?? [, text];
  if (port !== undefined && Number(port) > 65535) return null;
  const address = text[0] === '[' || inner.includes(':') ? inner.replace(/(.)%.+$/, '$1') : inner;
  if (text[0] === '[' && readIpv4(address) !== null) return null;
  return networkOf(address);
}

const containsNetwork = (outer, inner) => outer.size === inner.size && outer.length <= inner.length && inner.prefix >> BigInt(inner.length - outer.length) === outer.prefix;

/** The values of a control that stand for what lies in them. */
const networksOf = ({ entries, text }) => (text ? [] : entries.map(({ value }) => value).filter(readNetwork));
/** Whether a control matches a network as a text. */
const isTextOfNetwork = ({ entries, text }) => text === true && entries.some(({ value }) => readNetwork(value));
