// Elements. Whatever a client chose becomes text, never markup: nothing here parses HTML, and the
// browser is told to refuse it.

const byId = id => document.getElementById(id);

/** Makes an element with a class and children, which are elements or texts. */
function make(tag, className, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children.filter(child => child !== null && child !== undefined));
  return element;
}

/** Makes a button. With a `name` the focus finds it again when its row has been made again. */
function button(text, className, onClick, name = null) {
  const element = make('button', className, text);
  element.type = 'button';
  if (name !== null) element.dataset.focus = name;
  onPress(element, onClick);
  return element;
}

/** Calls `action` when a button is pressed. */
function onPress(element, action) {
  element.addEventListener('click', event => {
    // Some browsers leave the focus elsewhere, and dialogs give it back.
    element.focus();
    action(event);
  });
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

/**
 * Makes the children of `parent` those of `items`. Elements are kept by their key, so that focus and
 * clicks stay where they were.
 */
function reconcile(parent, items, keyOf, create, fill) {
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  const old = new Map();
  for (const child of parent.children) old.set(child.itemKey, child);
  const taken = new Set();
  let next = parent.firstElementChild;
  for (const item of items) {
    let key = keyOf(item);
    // Two keys that are cut alike look the same, too.
    while (taken.has(key)) key += ' ';
    taken.add(key);
    let element = old.get(key);
    if (element) {
      old.delete(key);
    } else {
      element = create(item);
      element.itemKey = key;
    }
    fill(element, item);
    if (element === next) next = next.nextElementSibling;
    else parent.insertBefore(element, next);
  }
  for (const element of old.values()) element.remove();
  if (focused && !parent.contains(document.activeElement)) focusOn(placeOf(focused, parent.closest('section')));
}

/** Whether someone points at or is in an element: then its rows stay in their order. */
function isInUse(element) {
  return element.matches(':hover, :focus-within');
}

/** Lets other tasks run: none of this page may take long. */
const pause = () => new Promise(resolve => {
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = resolve;
  port2.postMessage(null);
});

/** Lets the browser lay out and paint what has changed. */
const painted = () => new Promise(resolve => {
  requestAnimationFrame(() => setTimeout(resolve));
});

/** Returns the items that pass a test, a slice at a time. Ends early if `isStale`. */
async function filterInSlices(items, test, isStale = () => false, size = 500) {
  const found = [];
  for (let at = 0; at < items.length && !isStale(); at += size) {
    if (at) await pause();
    for (const item of items.slice(at, at + size)) if (test(item)) found.push(item);
  }
  return found;
}

/** Says something to screen readers. */
function announce(text) {
  byId('announcement').textContent = text;
}
