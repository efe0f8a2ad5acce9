// Elements that are kept while a page changes, and tasks that leave time to others.

/** Makes a button. With a `name` the focus finds it again when its row has been made again. */
function button(text, className, onClick, name = null) {
  const element = make('button', className, text);
  element.type = 'button';
  if (name !== null) element.dataset.focus = name;
  onPress(element, onClick);
  return element;
}

function onPress(element, action) {
  element.addEventListener('click', event => {
    // Some browsers leave the focus elsewhere, and dialogs give it back.
    element.focus();
    action(event);
  });
}

/** Makes the cell that names a row. */
function rowHead(...children) {
  const head = make('th', 'key', ...children);
  head.scope = 'row';
  return head;
}

/** Makes a cell with the label that narrow screens show instead of the head of its column. */
function labelled(className, label, child) {
  const cell = make('td', className, child);
  cell.dataset.label = label;
  return cell;
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
