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

/** Makes a button. */
function button(text, className, onClick) {
  const element = make('button', className, text);
  element.type = 'button';
  element.addEventListener('click', onClick);
  return element;
}

/** Changes a text only if it differs, so that selections and screen readers are left alone. */
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function show(element, isShown) {
  element.hidden = !isShown;
}

/**
 * Makes the children of `parent` those of `items`. Elements are kept by their key, so that focus and
 * clicks stay where they were.
 */
function reconcile(parent, items, keyOf, create, fill) {
  const old = new Map();
  for (const child of parent.children) old.set(child.itemKey, child);
  let next = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
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
}

/** Whether someone points at or is in an element: then its rows stay in their order. */
function isInUse(element) {
  return element.matches(':hover, :focus-within');
}

/** Says something to screen readers. */
function announce(text) {
  byId('announcement').textContent = text;
}
