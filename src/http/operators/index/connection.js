// The operators' web page: sends the requests to `/v1`, one a second for the status. The operator's token is kept in a
// variable of this script, and nowhere else.

let token = null;

/** How often the status is asked for, and how long its answer may take. */
const ASK_MS = 1000;
const SILENCE_MS = 5000;
const MAX_WAIT_MS = 15000;

/** An error answer of weir; with status 0, weir did not answer. */
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

/** Sends a request. If `tag` is the entity tag of an earlier answer, 304 (nothing has changed) is a success. */
async function request(method, path, body, signal, tag = null) {
  const headers = {};
  if (tag !== null) headers['If-None-Match'] = tag;
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
  if (response.ok || response.status === 304) return response;
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

/** Asks for the status for as long as the page is open. */
const live = {
  wake: null,
  abort: null,
  /** The tag of the last answer, and the number of the newest change. */
  tag: null, newest: null,
  /** Asks now instead of after the wait. */
  retry() {
    this.wake?.();
  },
  restart() {
    this.abort.abort();
    this.retry();
  },
  /** Returns an answer; null if it is the last one. */
  async ask(signal) {
    const response = await request('GET', `/v1/status${this.newest === null ? '' : `?after=${this.newest}`}`, undefined, signal, this.tag);
    if (response.status === 304) return null;
    const answer = await response.json();
    this.tag = response.headers.get('ETag');
    this.newest = answer.newest;
    return answer;
  },
  async follow({ onOpen, onAnswer, onLost }) {
    for (let failures = 0, isOpen = false; ;) {
      const startedAt = performance.now();
      const abort = new AbortController();
      this.abort = abort;
      const watchdog = setTimeout(() => abort.abort(), SILENCE_MS);
      let [answer, lost] = [null, null];
      try {
        answer = await this.ask(abort.signal);
      } catch (error) {
        lost = error instanceof Rejection ? error : new Rejection(0, { error: abort.signal.aborted ? 'weir does not answer' : 'weir closed the connection' });
      }
      clearTimeout(watchdog);
      if (!lost) {
        try {
          if (!isOpen) onOpen();
          onAnswer(answer);
        } catch (error) {
          // An error of this page is no reason to connect again.
          reportError(error);
        }
        [failures, isOpen] = [0, true];
        await this.wait(Math.max(0, ASK_MS - (performance.now() - startedAt)));
        continue;
      }
      [this.tag, isOpen] = [null, false];
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
      if (isGiven) live.retry();
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
