// Helpers to make elements and texts, for the page of `weir replay --output html` and weir's page for operators. Values
// that a client chose become text, never markup: nothing here parses HTML, and the browser is told to refuse it.

const byId = id => document.getElementById(id);

/** Makes an element with a class and children, which are elements or texts. */
function make(tag, className, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children.filter(child => child !== null && child !== undefined));
  return element;
}

/** Changes a text only if it differs, so that selections and screen readers are left alone. */
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function show(element, isShown) {
  element.hidden = !isShown;
}

function svg(tag, attributes) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

const NBSP = '\u00a0';
const grouped = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });

const number = value => grouped.format(value);

function counted(value, noun) {
  return `${number(value)}${NBSP}${noun}${value === 1 ? '' : 's'}`;
}

/** A text as one line in which nothing is invisible or reverses what follows. */
function visible(text) {
  return text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cn}\p{Co}]/gu, c => {
    const short = { '\n': '\\n', '\r': '\\r', '\t': '\\t' }[c];
    return short ?? `\\u{${c.codePointAt(0).toString(16)}}`;
  });
}

