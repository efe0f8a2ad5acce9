// The operators' web page: opens views. A view is what the page shows at an address, such as `#/key?domain=…`.

/** The views besides the overview, by name: `open(parameters)`, and optionally `refresh(seconds)` after a status, `close()`, and a `title` in place of the heading. */
const views = {};
/** The view that is open; null: the overview, or a part of it. */
let view = null;
/** The parts of the overview that have addresses, too: there they are shown in full, and alone. */
const PARTS_OF_OVERVIEW = ['keys', 'controls', 'changes', 'service'];
/** The part that is shown; empty: the overview. */
let part = '';
/** The navigation entries of views without one of their own. */
const NAV_OF = { key: 'keys', rule: 'rules' };
/** Where the overview was left. */
let overviewTop = 0;

/** Returns the address of a view. Parameters without a value are omitted. */
function address(name, parameters = {}) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== '' && value !== null && value !== undefined));
  return `#/${name}${query.size ? `?${query}` : ''}`;
}

const keyAddress = (domain, entries, cut = false) => address('key', { domain, descriptor: descriptorText(hideValues(entries)), cut: cut ? 1 : '' });

/** Returns the address of a rule that is known, with hashes in place of values that weir hides. */
const ruleAddress = (domain, rule) => address('rule', { domain, rule: knownRules.get(ruleKey(domain, rule))?.redacted_rule ?? rule });

function link(target, ...children) {
  const element = make('a', '', ...children);
  element.href = target;
  return element;
}

const keyLink = (domain, { entries, cut }, label = domain) => link(keyAddress(domain, entries, cut), keyElement(label, entries));

/** Shows the view of the address. */
function showView({ isFirst = false } = {}) {
  const [, name = '', query = ''] = /^#\/([^?]*)\??(.*)$/s.exec(location.hash) ?? [];
  const isBack = view !== null || part !== '';
  if (!isBack && !isFirst) overviewTop = scrollY;
  view?.close?.();
  view = Object.hasOwn(views, name) ? views[name] : null;
  part = PARTS_OF_OVERVIEW.includes(name) ? name : '';
  byId('overview').classList.toggle('digest', part === '');
  for (const child of byId('overview').children) child.classList.toggle('away', part ? child.id !== part && child.id !== 'headline' : child.id === 'service');
  show(byId('overview'), view === null);
  for (const other of Object.keys(views)) show(byId(`${other}-view`), views[other] === view);
  for (const item of document.querySelectorAll('nav a')) {
    const isCurrent = item.hash === `#/${view ? NAV_OF[name] ?? name : part}`;
    item.toggleAttribute('aria-current', isCurrent);
    if (!isCurrent) continue;
    item.ariaCurrent = 'page';
    // On a phone it may be out of sight.
    item.closest('nav').scrollLeft = item.offsetLeft - 64;
  }
  const heading = view ? byId(`${name}-view`).querySelector('h1') : part ? byId(part).querySelector('h2') : byId('headline');
  if (view) {
    view.open(Object.fromEntries(new URLSearchParams(query)));
    view.refresh?.(null);
  } else {
    showStatus(null);
  }
  document.title = `${view || part ? `${view?.title ?? heading.textContent} – ` : ''}weir ${location.host}`;
  if (!isFirst) setTimeout(() => moveTo(heading, isBack));
}

/** Moves to a view that was opened. Not in the same task: the browser lays it out. */
function moveTo(heading, isBack) {
  scrollTo(0, view === null && part === '' && isBack ? overviewTop : 0);
  if (part) heading.tabIndex = -1;
  heading.focus({ preventScroll: true });
}

/** Goes to an address, also to the one that is shown. */
function go(target) {
  if (location.hash === target) showView();
  else location.hash = target;
}

/** Changes the parameters of the view that is shown, without showing it again. */
function replaceAddress(target) {
  if (location.hash !== target) history.replaceState(null, '', target);
}

addEventListener('hashchange', () => showView());
