// Several paused tasks beside each other: their stacks as one tree, and their variables, with what differs marked. The relay looks
// at them and folds what it sees, as it does for `ray-relay diff`.

import { json } from './relay.js';
import { members, title } from './stop.js';
import { mayPrompt } from './terminal.js';
import { fileName, make, time, write } from './text.js';
import { shown } from './value.js';

/** Tasks that are looked at. */
const MOST = 256;
/** Columns beside each other, and answers to one variable that are shown at once. */
const SHOWN = 4;

/** What is compared besides variables. Where they stand, and by which calls, is in the tree. */
const WORDS = { exception: 'raised', line: 'stands at' };

/** The sign and the word for what is not as most have it, since a colour is seen by some alone. */
const differs = () => make('span', { class: 'word', title: 'Differs from most' }, '≠ ', make('span', { class: 'unseen' }, 'differs from most '));

function table(words, rows, label) {
  const head = make('tr', {}, ...words.map((word) => make('th', { scope: 'col' }, word)));
  return make('div', { class: 'wide', role: 'region', tabindex: '0', 'aria-label': label }, make('table', {}, make('thead', {}, head), make('tbody', {}, ...rows)));
}

function row(name, ...cells) {
  return make('tr', {}, make('th', { scope: 'row' }, name), ...cells);
}

/** `step (train.py)` of `step (/srv/app/train.py)`. */
const called = (frame) => frame.replace(/\((.*)\)$/, (_, file) => `(${fileName(file)})`);

/** What the relay answers to a comparison. */
class Told {
  constructor({ members: all, groups, stacks, unknown }) {
    Object.assign(this, { all, groups, stacks, unknown });
    this.seen = all.filter(({ error }) => !error);
  }

  /** `rank 3` of what the relay calls `3`. */
  whose(who) {
    if (!/^[\d,-]+$/.test(who)) return who;
    return /[,-]/.test(who) ? `ranks ${who}` : `rank ${who}`;
  }

  /** The same of the places of some. */
  of(places) {
    return members(places.map((at) => ({ ...this.all[at].breakpoint, rank: this.all[at].number })));
  }

  /** `differences` with a column for each of the classes `columns` of tasks. */
  beside(differences, columns, label) {
    const cell = ({ answers }, [member]) => {
      const { text, odd } = answers.find((one) => one.members.includes(member));
      return make('td', { class: odd ? 'odd' : null }, odd ? differs() : null, shown(text));
    };
    const rows = differences.map((one) => row(one.name ?? WORDS[one.what], ...columns.map((column) => cell(one, column))));
    return table(['Variable', ...columns.map((column) => this.of(column))], rows, label);
  }

  /** `differences` with whose answers below each other, where there are too many for columns. */
  below(differences, label) {
    const answer = ({ text, who, odd }) => make('div', { class: odd ? 'answer odd' : 'answer' }, make('span', { class: 'whose' }, odd ? differs() : null, this.whose(who)), shown(text));
    const figures = ({ min, min_of: least, median, max, max_of: most }) => make('div', { class: 'hint' }, `min ${min} (${this.of(least)}), median ${median}, max ${max} (${this.of(most)})`);
    const cell = ({ answers, figures: numbers }) => {
      const all = answers.map(answer);
      const told = numbers && answers.length > 2 ? figures(numbers) : null;
      if (all.length <= SHOWN + 1) return make('td', {}, told, ...all);
      return make('td', {}, told, ...all.slice(0, SHOWN), make('details', {}, make('summary', { class: 'hint' }, `${all.length - SHOWN} more values`), ...all.slice(SHOWN)));
    };
    return table(['Variable', 'Values, by task'], differences.map((one) => row(one.name ?? WORDS[one.what], cell(one))), label);
  }

  /** What differs in `frame`: where there are few answers, beside each other, as far as there is room. */
  differing(differences, frame) {
    const size = ({ answers }) => answers.reduce((sum, one) => sum + one.members.length, 0);
    const few = differences.filter((one) => one.answers.length <= SHOWN && one.answers.length < size(one));
    const columns = classes(few);
    const isBeside = few.length > 0 && columns.length <= SHOWN && new Set(columns.flat().map((at) => this.all[at].group)).size === 1;
    const others = isBeside ? differences.filter((one) => !few.includes(one)) : differences;
    return [
      isBeside ? this.beside(few, columns, `What differs in ${frame}`) : null,
      others.length > 0 ? this.below(others, `What is another one for each in ${frame}`) : null,
    ];
  }
}

/** The tasks that `differences` are about, in classes within each of which all have one answer; the smallest first. */
function classes(differences) {
  const all = [...new Set(differences.flatMap(({ answers }) => answers.flatMap((one) => one.members)))];
  const answer = (at, { answers }) => answers.findIndex((one) => one.members.includes(at));
  const by = Map.groupBy(all, (at) => differences.map((one) => answer(at, one)).join());
  return [...by.values()].map((some) => some.sort((a, b) => a - b)).sort((a, b) => a.length - b.length);
}

/** The elements of one frame of a group: what differs in it, and what does not. */
function frameOf(told, [frame, { differences, same, noise, not_compared: unsure }], isOpen) {
  const name = frame ? called(frame) : 'The exception';
  const says = differences.length > 0 ? `${differences.length} differ` : 'nothing differs';
  const summary = make('summary', { title: frame || null }, make('span', { class: 'name' }, name), ` · ${says}`);
  const list = (all, word) => {
    const rows = all.map((one) => row(one.name ?? WORDS[one.what], make('td', {}, shown(one.text))));
    return rows.length > 0 ? make('details', { class: 'frame' }, make('summary', {}, `${rows.length} ${word}`), table(['Variable', 'Value'], rows, `${rows.length} ${word} in ${name}`)) : null;
  };
  return make('details', { class: 'frame', open: isOpen }, summary, ...told.differing(differences, name), list(same, 'alike'), list(noise, 'other in each process'), list(unsure, 'not compared'));
}

/** The elements of one of the relay's groups. */
function groupOf(told, group) {
  const frames = new Map();
  for (const key of ['differences', 'same', 'noise', 'not_compared']) {
    for (const one of group[key] ?? []) {
      if (one.what !== 'variable' && !WORDS[one.what]) continue;
      const frame = one.frame ?? '';
      if (!frames.has(frame)) frames.set(frame, { differences: [], same: [], noise: [], not_compared: [] });
      frames.get(frame)[key].push(one);
    }
  }
  const all = [group.differences, group.noise ?? [], group.not_compared ?? []].reduce((sum, some) => sum + some.length, group.alike);
  const marked = [...new Set(group.differences.flatMap(({ answers }) => answers.flatMap((one) => (one.odd ? one.members : []))))].sort((a, b) => a - b);
  const says = () => (marked.length > 0 ? `${told.of(marked)} differ from most somewhere, none of them more often than the others.` : null);
  const odd = group.odd.length > 0 ? `${told.of(group.odd)} ${group.odd.length === 1 ? 'is the odd one out: it differs' : 'are the odd ones out: each differs'} from most in ${group.odd_in} of ${all} values.` : says();
  return [
    make('h3', {}, told.groups.length > 1 ? `Variables of ${group.group}` : 'Variables'),
    odd ? make('p', { class: 'odd-one' }, odd) : null,
    frames.size === 0 ? make('p', { class: 'none' }, 'There is nothing to compare.') : null,
    ...[...frames].map((frame, at) => frameOf(told, frame, at === 0)),
  ].filter(Boolean);
}

function branch(told, nodes) {
  const item = ({ function: name, file, line, who, odd, calls }) => {
    const call = make('span', { class: odd ? 'odd' : null, title: file }, `${name} (${fileName(file)}:${line})`);
    return make('li', {}, odd ? differs() : null, call, ' ', make('span', { class: 'whose' }, told.whose(who)), calls.length > 0 ? branch(told, calls) : null);
  };
  return make('ul', { class: 'tree' }, ...nodes.map(item));
}

/** Which task has which pid, where its rank is not known. */
function legend(told) {
  const some = told.all.filter(({ number }) => number == null);
  if (some.length === 0) return null;
  const item = ({ breakpoint }) => make('li', {}, `pid ${breakpoint.pid}: ${title(breakpoint)} on ${breakpoint.node_ip}, `, make('code', {}, breakpoint.id));
  return make('details', { class: 'ids' }, make('summary', {}, 'Which task has which pid'), make('ul', {}, ...some.map(item)));
}

export class Comparison {
  /** Of `rows`; `prompt(rows)` opens one prompt for them, where `me` may have that. */
  constructor(rows, me, prompt) {
    this.rows = rows.slice(0, MOST);
    this.heading = make('h2', { tabindex: '-1' }, `${rows.length} tasks compared`);
    const cut = rows.length > MOST ? `The first ${MOST} of ${rows.length} are looked at. ` : '';
    const again = make('button', { type: 'button', onclick: () => this.look() }, 'Look again');
    const one = mayPrompt(me) ? [make('button', { type: 'button', onclick: () => prompt(rows) }, 'Prompt for all')] : [];
    this.told = make('p', { class: 'told', role: 'status' });
    this.failed = make('div');
    this.shown = make('div', { class: 'shown' });
    this.element = make('article', { class: 'task' }, this.heading, make('p', { class: 'hint' }, `${cut}They stay as they are.`), make('div', { class: 'buttons' }, again, ...one), this.told, this.failed, this.shown);
  }

  /** Has the relay look at each, and shows them together. */
  async look() {
    const turn = Symbol('a look');
    this.turn = turn;
    write(this.told, `Looking at ${this.rows.length} tasks …`);
    try {
      const answer = await json('v1/compare', { method: 'POST', body: { ids: this.rows.map((row) => row.id), process: true }, patience: 70_000 });
      if (this.turn === turn) this.show(new Told(answer));
    } catch (error) {
      if (this.turn === turn) write(this.told, error.message);
    }
  }

  show(told) {
    this.told.replaceChildren(`${told.seen.length} as they stood `, time(Date.now()), ' ago.');
    const gone = told.unknown.map((id) => make('li', {}, `${id}: it is not paused any more`));
    const failed = told.all.filter(({ error }) => error).map(({ breakpoint, error }) => make('li', {}, `${title(breakpoint)}: ${error}`)).concat(gone);
    this.failed.replaceChildren(...(failed.length > 0 ? [make('details', { class: 'trouble' }, make('summary', {}, `${failed.length} could not be looked at`), make('ul', {}, ...failed))] : []));
    const isSeen = told.seen.length > 0;
    this.shown.replaceChildren(...(isSeen ? [make('h3', {}, 'Where they stand'), branch(told, told.stacks), ...told.groups.flatMap((group) => groupOf(told, group)), legend(told)].filter(Boolean) : []));
  }

  /** A look takes what it needs; nothing else waits for it. */
  isBusy() {
    return false;
  }

  close() {
    this.turn = null;
    this.element.remove();
  }
}
