// A comparison of several paused tasks: one tree of their stacks, and their variables with differences marked. The relay inspects
// the tasks and folds the results, as it does for `ray-relay diff`.

import { json } from './relay.js';
import { members, title } from './stop.js';
import { mayPrompt } from './terminal.js';
import { fileName, make, time, write } from './text.js';
import { shown } from './value.js';

/** Tasks that are inspected. */
const MAX_TASKS = 256;
/** Columns of a table, and values of one variable that are shown unfolded. */
const MAX_COLUMNS = 4;

/** Compared properties other than variables. Locations and calls are in the tree. */
const LABELS = { exception: 'raised', line: 'stands at' };

/** Marks an unusual value by sign and text, because not everyone sees colours. */
const differs = () => make('span', { class: 'word', title: 'Differs from most' }, '≠ ', make('span', { class: 'unseen' }, 'differs from most '));

function table(words, rows, label) {
  const head = make('tr', {}, ...words.map((word) => make('th', { scope: 'col' }, word)));
  return make('div', { class: 'wide', role: 'region', tabindex: '0', 'aria-label': label }, make('table', {}, make('thead', {}, head), make('tbody', {}, ...rows)));
}

function row(name, ...cells) {
  return make('tr', {}, make('th', { scope: 'row' }, name), ...cells);
}

/** `step (train.py)` of `step (/srv/app/train.py)`. */
const shortFrame = (frame) => frame.replace(/\((.*)\)$/, (_, file) => `(${fileName(file)})`);

/** The relay's answer to a comparison. */
class ComparisonResult {
  constructor({ members: all, groups, stacks, unknown }) {
    Object.assign(this, { all, groups, stacks, unknown });
    this.inspected = all.filter(({ error }) => !error);
  }

  /** Returns `rank 3` for the relay's `3`. */
  ranksLabel(who) {
    if (!/^[\d,-]+$/.test(who)) return who;
    return /[,-]/.test(who) ? `ranks ${who}` : `rank ${who}`;
  }

  /** Returns the same label for indices of tasks. */
  label(places) {
    return members(places.map((at) => ({ ...this.all[at].breakpoint, rank: this.all[at].number })));
  }

  /** A table of `differences`, with a column for each class of tasks in `columns`. */
  columnsTable(differences, columns, label) {
    const cell = ({ answers }, [member]) => {
      const { text, odd } = answers.find((one) => one.members.includes(member));
      return make('td', { class: odd ? 'odd' : null }, odd ? differs() : null, shown(text));
    };
    const rows = differences.map((one) => row(one.name ?? LABELS[one.what], ...columns.map((column) => cell(one, column))));
    return table(['Variable', ...columns.map((column) => this.label(column))], rows, label);
  }

  /** A table of `differences`, with all values of a variable in one cell. */
  rowsTable(differences, label) {
    const answer = ({ text, who, odd }) => make('div', { class: odd ? 'answer odd' : 'answer' }, make('span', { class: 'whose' }, odd ? differs() : null, this.ranksLabel(who)), shown(text));
    const figuresElement = ({ min, min_of: minMembers, median, max, max_of: most }) => make('div', { class: 'hint' }, `min ${min} (${this.label(minMembers)}), median ${median}, max ${max} (${this.label(most)})`);
    const cell = ({ answers, figures: numbers }) => {
      const all = answers.map(answer);
      const result = numbers && answers.length > 2 ? figuresElement(numbers) : null;
      if (all.length <= MAX_COLUMNS + 1) return make('td', {}, result, ...all);
      return make('td', {}, result, ...all.slice(0, MAX_COLUMNS), make('details', {}, make('summary', { class: 'hint' }, `${all.length - MAX_COLUMNS} more values`), ...all.slice(MAX_COLUMNS)));
    };
    return table(['Variable', 'Values, by task'], differences.map((one) => row(one.name ?? LABELS[one.what], cell(one))), label);
  }

  /** The tables of the differences in `frame`: by columns if there are few values, and otherwise by rows. */
  differenceTables(differences, frame) {
    const size = ({ answers }) => answers.reduce((sum, one) => sum + one.members.length, 0);
    const columnDifferences = differences.filter((one) => one.answers.length <= MAX_COLUMNS && one.answers.length < size(one));
    const columns = taskClasses(columnDifferences);
    const inColumns = columnDifferences.length > 0 && columns.length <= MAX_COLUMNS && new Set(columns.flat().map((at) => this.all[at].group)).size === 1;
    const rowDifferences = inColumns ? differences.filter((one) => !columnDifferences.includes(one)) : differences;
    return [
      inColumns ? this.columnsTable(columnDifferences, columns, `What differs in ${frame}`) : null,
      rowDifferences.length > 0 ? this.rowsTable(rowDifferences, `What is another one for each in ${frame}`) : null,
    ];
  }
}

/** The tasks in `differences`, grouped by equal values; the smallest group first. */
function taskClasses(differences) {
  const all = [...new Set(differences.flatMap(({ answers }) => answers.flatMap((one) => one.members)))];
  const answer = (at, { answers }) => answers.findIndex((one) => one.members.includes(at));
  const by = Map.groupBy(all, (at) => differences.map((one) => answer(at, one)).join());
  return [...by.values()].map((some) => some.sort((a, b) => a - b)).sort((a, b) => a.length - b.length);
}

/** The element of one frame of a group: different, equal, per-process and uncompared values. */
function frameElement(result, [frame, { differences, same, noise, not_compared: unsure }], isOpen) {
  const name = frame ? shortFrame(frame) : 'The exception';
  const summaryText = differences.length > 0 ? `${differences.length} differ` : 'nothing differs';
  const summary = make('summary', { title: frame || null }, make('span', { class: 'name' }, name), ` · ${summaryText}`);
  const list = (all, word) => {
    const rows = all.map((one) => row(one.name ?? LABELS[one.what], make('td', {}, shown(one.text))));
    return rows.length > 0 ? make('details', { class: 'frame' }, make('summary', {}, `${rows.length} ${word}`), table(['Variable', 'Value'], rows, `${rows.length} ${word} in ${name}`)) : null;
  };
  return make('details', { class: 'frame', open: isOpen }, summary, ...result.differenceTables(differences, name), list(same, 'alike'), list(noise, 'other in each process'), list(unsure, 'not compared'));
}

/** The elements of one of the relay's groups. */
function groupElement(result, group) {
  const frames = new Map();
  for (const key of ['differences', 'same', 'noise', 'not_compared']) {
    for (const one of group[key] ?? []) {
      if (one.what !== 'variable' && !LABELS[one.what]) continue;
      const frame = one.frame ?? '';
      if (!frames.has(frame)) frames.set(frame, { differences: [], same: [], noise: [], not_compared: [] });
      frames.get(frame)[key].push(one);
    }
  }
  const all = [group.differences, group.noise ?? [], group.not_compared ?? []].reduce((sum, some) => sum + some.length, group.alike);
  const marked = [...new Set(group.differences.flatMap(({ answers }) => answers.flatMap((one) => (one.odd ? one.members : []))))].sort((a, b) => a - b);
  const summaryText = () => (marked.length > 0 ? `${result.label(marked)} differ from most somewhere, none of them more often than the others.` : null);
  const odd = group.odd.length > 0 ? `${result.label(group.odd)} ${group.odd.length === 1 ? 'is the odd one out: it differs' : 'are the odd ones out: each differs'} from most in ${group.odd_in} of ${all} values.` : summaryText();
  return [
    make('h3', {}, result.groups.length > 1 ? `Variables of ${group.group}` : 'Variables'),
    odd ? make('p', { class: 'odd-one' }, odd) : null,
    frames.size === 0 ? make('p', { class: 'none' }, 'There is nothing to compare.') : null,
    ...[...frames].map((frame, at) => frameElement(result, frame, at === 0)),
  ].filter(Boolean);
}

function branch(result, nodes) {
  const item = ({ function: name, file, line, who, odd, calls }) => {
    const call = make('span', { class: odd ? 'odd' : null, title: file }, `${name} (${fileName(file)}:${line})`);
    return make('li', {}, odd ? differs() : null, call, ' ', make('span', { class: 'whose' }, result.ranksLabel(who)), calls.length > 0 ? branch(result, calls) : null);
  };
  return make('ul', { class: 'tree' }, ...nodes.map(item));
}

/** The pids of tasks without a known rank. */
function legend(result) {
  const some = result.all.filter(({ number }) => number == null);
  if (some.length === 0) return null;
  const item = ({ breakpoint }) => make('li', {}, `pid ${breakpoint.pid}: ${title(breakpoint)} on ${breakpoint.node_ip}, `, make('code', {}, breakpoint.id));
  return make('details', { class: 'ids' }, make('summary', {}, 'Which task has which pid'), make('ul', {}, ...some.map(item)));
}

export class Comparison {
  /** Compares `rows`; `prompt(rows)` opens a prompt for all of them, if `me` may open one. */
  constructor(rows, me, prompt) {
    this.rows = rows.slice(0, MAX_TASKS);
    this.heading = make('h2', { tabindex: '-1' }, `${rows.length} tasks compared`);
    const limitNote = rows.length > MAX_TASKS ? `The first ${MAX_TASKS} of ${rows.length} are looked at. ` : '';
    const repeat = make('button', { type: 'button', onclick: () => this.inspect() }, 'Look again');
    const one = mayPrompt(me) ? [make('button', { type: 'button', onclick: () => prompt(rows) }, 'Prompt for all')] : [];
    this.message = make('p', { class: 'told', role: 'status' });
    this.failed = make('div');
    this.content = make('div', { class: 'shown' });
    this.element = make('article', { class: 'task' }, this.heading, make('p', { class: 'hint' }, `${limitNote}They stay as they are.`), make('div', { class: 'buttons' }, repeat, ...one), this.message, this.failed, this.content);
  }

  /** Requests the comparison and shows it. */
  async inspect() {
    const request = Symbol('a look');
    this.request = request;
    write(this.message, `Looking at ${this.rows.length} tasks …`);
    try {
      const answer = await json('v1/compare', { method: 'POST', body: { ids: this.rows.map((row) => row.id), process: true }, timeout: 70_000 });
      if (this.request === request) this.show(new ComparisonResult(answer));
    } catch (error) {
      if (this.request === request) write(this.message, error.message);
    }
  }

  show(result) {
    this.message.replaceChildren(`${result.inspected.length} as they stood `, time(Date.now()), ' ago.');
    const ended = result.unknown.map((id) => make('li', {}, `${id}: it is not paused any more`));
    const failed = result.all.filter(({ error }) => error).map(({ breakpoint, error }) => make('li', {}, `${title(breakpoint)}: ${error}`)).concat(ended);
    this.failed.replaceChildren(...(failed.length > 0 ? [make('details', { class: 'trouble' }, make('summary', {}, `${failed.length} could not be looked at`), make('ul', {}, ...failed))] : []));
    const isSeen = result.inspected.length > 0;
    this.content.replaceChildren(...(isSeen ? [make('h3', {}, 'Where they stand'), branch(result, result.stacks), ...result.groups.flatMap((group) => groupElement(result, group)), legend(result)].filter(Boolean) : []));
  }

  /** A comparison may be closed at any time. */
  isBusy() {
    return false;
  }

  close() {
    this.request = null;
    this.element.remove();
  }
}
