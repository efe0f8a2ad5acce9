// The operators' web page: the table of controls (blocks, allows and limits that operators set at run time) and the
// dialog that removes one.

const MAX_CONTROLS_SHOWN = 100;

let controls = [];
/** When the list was read, for the time that is left. */
let controlsAt = 0;
/** Whether a list is being read, and whether it has changed since. */
let reading = null;

/** Reads the list. One request at a time is enough, if the last one starts after the last change. */
async function readControls() {
  if (reading) {
    reading.again = true;
    return;
  }
  reading = { again: false };
  try {
    do {
      reading.again = false;
      const answer = await call('GET', '/v1/controls');
      controls = answer.controls;
      controlsAt = performance.now();
    } while (reading.again);
  } catch (error) {
    if (!(error instanceof Rejection)) throw error;
    // The status says so, too, and the list is read again when it is back.
  } finally {
    reading = null;
  }
  showControls();
  view?.refresh?.(null);
}

/** What a limit becomes, in words. */
function changeText({ name, n, burst }) {
  return `${name ? `${shortened(name)} ` : ''}to ${number(n)}${burst === undefined ? '' : `, burst ${number(burst)}`}`;
}

function actionText({ action, count, limit }) {
  if (action === 'limit') return `limit ${changeText(limit)}`;
  return action === 'allow' && count === false ? 'allow without counting' : action;
}

function showControls() {
  show(byId('no-controls'), controls.length === 0 && controlsAt > 0);
  const shown = controls.slice(0, MAX_CONTROLS_SHOWN);
  show(byId('more-controls'), controls.length > shown.length);
  setText(byId('more-controls'), `${counted(controls.length - shown.length, 'more control')}: the search finds them.`);
  setText(byId('all-controls'), `All ${counted(controls.length, 'control')}`);
  listControls(byId('control-rows'), shown);
}

function listControls(body, shown) {
  show(body.parentElement, shown.length > 0);
  reconcile(body, shown, ({ id, at }) => `${id} ${at}`, makeControl, fillControl);
}

function makeControl(control) {
  const { id, domain, entries, exact, action, until, reason, by, at } = control;
  const row = make('tr', '');
  const key = rowHead(keyElement(domain, entries), exceptText(control), exact ? ' exactly' : null, isTextOfNetwork(control) ? ' as a text' : null, make('span', 'note', code(id)));
  row.left = make('span', '');
  const ends = labelled('', 'Ends', make('span', '', row.left, until === null ? null : make('span', 'note word', moment(until))));
  const why = labelled('', 'Reason', make('span', '', reason ? shortened(reason, 120, 40) : '–', make('span', 'note', `${by ? `${shortened(by)}, ` : ''}${moment(at)}`)));
  const what = `${action} of ${visible(keyText(domain, entries))}`;
  const change = button('Change', 'quiet', () => editor.open({ ...control, lasts: until === null ? 'forever' : 'until' }), `change ${id}`);
  const remove = button('Remove', 'quiet', () => removal.open(control), `remove ${id}`);
  change.setAttribute('aria-label', `Change the ${what}`);
  remove.setAttribute('aria-label', `Remove the ${what}`);
  row.append(make('td', '', make('span', `badge ${action}`, action), action === 'block' ? null : make('span', 'note', actionText(control).replace(/^\w+ ?/, ''))), key, ends, why, make('td', 'act', change, ' ', remove));
  return row;
}

function fillControl(row, control) {
  row.control = control;
  const { left_ms: left } = control;
  setText(row.left, left === null ? 'never' : `in ${duration(left - (performance.now() - controlsAt))}`);
}

/** A sentence about who applies a change, and how long. */
function reachText({ shared, kept, not_kept_because: why }) {
  if (shared) return 'All replicas apply it within a second.';
  const lost = kept ? '' : ` It is lost when weir restarts${why ? `: ${shortened(why, 200, 50)}` : ''}.`;
  return `Only this replica applies it until the store answers, if replicas share one.${lost}`;
}

const removal = {
  control: null,
  open(control) {
    this.control = control;
    const { domain, entries, reason, by } = control;
    const about = [reason && shortened(reason, 120, 40), by && `by ${shortened(by)}`].filter(Boolean).join(', ');
    byId('removal-h').textContent = `Remove this ${control.action}?`;
    byId('removal-text').replaceChildren(
      make('p', `summary ${control.action}`, keyElement(domain, entries), exceptText(control), about ? make('span', 'note', ` ${about}`) : null),
      make('p', 'hint', 'The rules decide about its requests again, on all replicas that share controls.'));
    byId('removal-error').textContent = '';
    openDialog(byId('removal'));
    byId('removal-confirm').focus();
  },
  async confirm() {
    const by = editor.by ? `?by=${encodeURIComponent(editor.by)}` : '';
    await call('DELETE', `/v1/controls/${encodeURIComponent(removal.control.id)}${by}`);
    byId('removal').close();
    announce('The control is removed.');
    readControls();
  },
};

onConfirm('removal', removal.confirm);
