// Requests to weir, and its events. The token is a variable of this script and nothing else.

let token = null;

/** No frame for this long: the connection is dead. A status comes every second. */
const SILENCE_MS = 5000;
const MAX_WAIT_MS = 15000;

/** An answer that is no success. */
class Rejection extends Error {
  constructor(status, { error, help }) {
    super(error);
    this.status = status;
    this.help = help ?? '';
  }
}

/** Whether a token could help. */
function needsToken(error) {
  return error instanceof Rejection && (error.status === 401 || (error.status === 403 && token !== null));
}

async function request(method, path, body, signal) {
  const headers = {};
  if (token !== null) headers.Authorization = `Bearer ${token}`;
  if (method !== 'GET') headers['Content-Type'] = 'application/json';
  const options = { method, headers, signal, cache: 'no-store', credentials: 'omit', redirect: 'error' };
  if (body !== undefined) options.body = JSON.stringify(body);
  let response;
  try {
    response = await fetch(path, options);
  } catch (cause) {
    throw signal?.aborted ? cause : new Rejection(0, { error: 'weir does not answer' });
  }
  if (response.ok) return response;
  const answer = await response.json().catch(() => ({}));
  throw new Rejection(response.status, answer.error ? answer : { error: `weir answers ${response.status}` });
}

/** Sends a request, and asks for a token if one is needed. Returns the JSON of the answer. */
async function call(method, path, body) {
  for (;;) {
    try {
      return await (await request(method, path, body)).json();
    } catch (error) {
      if (!needsToken(error) || !(await askForToken(error))) throw error;
    }
  }
}

/** Calls `onEvent(name, data)` for each event of a stream, until it ends. */
async function readEvents(signal, onOpen, onEvent) {
  const response = await request('GET', '/v1/events', undefined, signal);
  onOpen();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    const frames = text.split('\n\n');
    text = frames.pop();
    for (const frame of frames) {
      const event = /^event: (\w+)\ndata: (.*)$/.exec(frame);
      if (!event) continue;
      try {
        onEvent(event[1], JSON.parse(event[2]));
      } catch (error) {
        // An error of this page is no reason to connect again.
        reportError(error);
      }
    }
  }
}

/** Follows the events for as long as the page is open. */
const events = {
  wake: null,
  abort: null,
  /** Tries now instead of after the wait. */
  retry() {
    this.wake?.();
  },
  /** Closes the connection and connects again. */
  restart() {
    this.abort.abort();
    this.retry();
  },
  async follow({ onOpen, onEvent, onLost }) {
    for (let failures = 0; ;) {
      const abort = new AbortController();
      this.abort = abort;
      let watchdog = null;
      const alive = () => {
        clearTimeout(watchdog);
        watchdog = setTimeout(() => abort.abort(), SILENCE_MS);
      };
      let lost = new Rejection(0, { error: 'weir closed the connection' });
      alive();
      try {
        await readEvents(abort.signal, () => { alive(); onOpen(); }, (name, data) => {
          alive();
          failures = 0;
          onEvent(name, data);
        });
      } catch (error) {
        if (error instanceof Rejection) lost = error;
        else if (abort.signal.aborted) lost = new Rejection(0, { error: 'weir does not answer' });
      }
      clearTimeout(watchdog);
      abort.abort();
      if (needsToken(lost)) {
        onLost(lost, null);
        // Waits from here on: the button may be pressed before the event of the closed dialog arrives.
        const retried = this.wait(null);
        if (await askForToken(lost)) failures = 0;
        else await retried;
        continue;
      }
      // Spread, so that the pages of a restarted server do not come back all at once.
      const wait = Math.min(MAX_WAIT_MS, 1000 * 2 ** failures) * (0.75 + Math.random() / 2);
      failures += 1;
      onLost(lost, Date.now() + wait);
      await this.wait(wait);
    }
  },
  /** Waits, without an end if `ms` is null, or until `retry`. */
  wait(ms) {
    return new Promise(resolve => {
      const timer = ms === null ? null : setTimeout(resolve, ms);
      this.wake = () => { clearTimeout(timer); resolve(); };
    });
  },
};

const TOKEN_HELP = 'That of debug.read_token_file shows everything; that of debug.write_token_file also adds and removes controls.';

/** The answer to a question for a token that is open; all that ask share it. */
let asked = null;

/** Asks for a token. Returns whether there is one now. */
function askForToken(error) {
  const dialog = byId('login');
  asked ??= new Promise(resolve => {
    byId('token').value = '';
    dialog.returnValue = '';
    dialog.addEventListener('close', () => {
      const given = byId('token').value.trim();
      byId('token').value = '';
      asked = null;
      const isGiven = dialog.returnValue === 'use' && given !== '';
      if (isGiven) token = given;
      if (isGiven) events.retry();
      show(byId('forget'), token !== null);
      resolve(isGiven);
    }, { once: true });
    openDialog(dialog);
  });
  const isWrong = error.status === 401 && token !== null;
  if (isWrong) token = null;
  show(byId('forget'), token !== null);
  setText(byId('login-h'), error.status === 403 ? 'Another token is needed' : 'A token is needed');
  // The first question is no error.
  setText(byId('login-error'), isWrong || error.status === 403 ? sentence(error.message) : '');
  setText(byId('login-help'), error.status === 403 ? sentence(error.help) : TOKEN_HELP);
  return asked;
}

/** An error of the API as a sentence. */
function sentence(text) {
  return text ? `${text[0].toUpperCase()}${text.slice(1)}${/[.?!…]$/.test(text) ? '' : '.'}` : '';
}

function failure(error) {
  return [error.message, error.help].filter(Boolean).map(sentence).join(' ');
}

byId('login-form').addEventListener('submit', event => {
  event.preventDefault();
  if (byId('token').value.trim()) byId('login').close('use');
});
byId('login-cancel').addEventListener('click', () => byId('login').close(''));
