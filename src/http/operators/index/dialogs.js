// Dialogs: the focus returns to where it was.

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
