// The operators' web page: helpers that make and update elements without losing the focus, split long work into slices,
// and open dialogs, after which the focus returns to where it was.

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

/** Returns what has the focus after `opener`: itself, else what has its name now, else the heading above it. */
function placeOf(opener, section) {
  const isThere = element => element?.isConnected && element.checkVisibility();
  if (isThere(opener)) return opener;
  const name = opener?.dataset?.focus;
  const named = name && document.querySelector(`[data-focus="${CSS.escape(name)}"]`);
  if (isThere(named)) return named;
  const heading = section?.isConnected ? section.querySelector('h1, h2, h3') : null;
  return isThere(heading) ? heading : byId('headline').checkVisibility() ? byId('headline') : document.querySelector('main h1:not([hidden])');
}

/** Moves the focus to a heading or a control. */
function focusOn(element) {
  if (/^H\d$/.test(element.tagName)) element.tabIndex = -1;
  element.focus();
}

function openDialog(dialog) {
  const opener = document.activeElement;
  const section = opener?.closest('section');
  dialog.addEventListener('close', () => {
    const now = document.activeElement;
    if (opener !== document.body && (now === null || now === document.body)) focusOn(placeOf(opener, section));
  }, { once: true });
  dialog.showModal();
  dialog.scrollTop = 0;
}

/** Runs `action` when a dialog is confirmed, and shows its error there. */
function onConfirm(name, action) {
  const confirm = byId(`${name}-confirm`);
  byId(`${name}-form`).addEventListener('submit', async event => {
    event.preventDefault();
    confirm.disabled = true;
    try {
      await action();
    } catch (error) {
      if (!(error instanceof Rejection)) throw error;
      byId(`${name}-error`).textContent = failure(error);
    } finally {
      confirm.disabled = false;
    }
  });
  byId(`${name}-cancel`).addEventListener('click', () => byId(name).close());
}
