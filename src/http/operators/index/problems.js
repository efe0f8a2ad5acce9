// The operators' web page: problems, such as rejected rules or a failing store: a line each, above every view.

let problems = [];
/** The problems that screen readers were told: each once. */
let announcedProblems = new Set();

/** Kinds whose text quotes an error, or one domain of several: with another text it is still the same problem. */
const VARYING_KINDS = ['store', 'controls', 'disk', 'xds', 'domain'];
const NO_PROBLEM = 'No problem is left.';

const fileName = path => shortened(path.split('/').pop());

function placeText({ file, line, column }) {
  return file ? [fileName(file), line, column].filter(part => part !== null && part !== undefined).join(':') : '';
}

/** A problem as its first words, the rest of the sentence, and a second sentence. */
function problemTexts(problem) {
  const { kind, text, count, since } = problem;
  const place = placeText(problem);
  // Some are older than weir knows.
  const when = Date.parse(since) > 0 ? `, since ${dayAndTime(Date.parse(since), 5)}` : '';
  if (kind === 'rules') {
    const where = [count === null ? '' : counted(count, 'problem'), place && `${count > 1 ? 'first ' : ''}at ${place}`].filter(Boolean).join(', ');
    return { title: rejectedText(/^(new )?overlay /.test(text) ? 'overlay' : 'rules'), rest: `${where ? `: ${where}` : ''}${when}.`, more: sentence(shortened(text, 300, 80)) };
  }
  const [title, ...rest] = shortened(text, 300, 80).split(': ');
  return { title: `${title[0].toUpperCase()}${title.slice(1)}`, rest: `${rest.length ? `: ${rest.join(': ')}` : ''}${place ? ` (${place})` : ''}${when}.`, more: '' };
}

function problemText(problem) {
  const { title, rest } = problemTexts(problem);
  return `${title}${rest}`;
}

/** Without what varies, as its times: a problem that lasts is announced once. */
const problemKey = ({ kind, severity, file, line, column, count, text }) => JSON.stringify([kind, severity, file, line, column, count, VARYING_KINDS.includes(kind) ? '' : text.replace(/\d+/g, '')]);

function showProblems(next) {
  problems = next;
  show(byId('problems'), problems.length > 0);
  const worst = problems.some(({ severity }) => severity === 'critical') ? 'critical' : problems.length ? 'warning' : '';
  byId('problems').className = `problems ${worst}`;
  byId('head').className = worst;
  reconcile(byId('problem-rows'), problems, problemKey, () => make('li', ''), (row, problem) => {
    const { title, rest, more } = problemTexts(problem);
    const text = `${title}${rest} ${more}`;
    if (row.text === text) return;
    row.text = text;
    row.className = problem.severity;
    const toDo = problem.runbook && link(`/runbooks/${problem.runbook}`, 'What to do');
    row.replaceChildren(...[title && make('b', '', title), `${rest} `, toDo, more && make('span', 'note', more)].filter(Boolean));
  });
  const fresh = problems.filter(problem => !announcedProblems.has(problemKey(problem)));
  if (fresh.length) {
    announce(fresh.map(problemText).join(' '));
  } else if (announcedProblems.size && !problems.length) {
    announce(NO_PROBLEM);
  }
  announcedProblems = new Set(problems.map(problemKey));
}

function stateText(serving) {
  const rejected = problems.some(({ kind }) => kind === 'rules');
  const others = problems.filter(({ kind }) => kind !== 'rules').length;
  const texts = [serving ? 'serving' : 'not serving', rejected && 'the rules are rejected', others && counted(others, rejected ? 'other problem' : 'problem')];
  return texts.filter(Boolean).join('; ');
}
