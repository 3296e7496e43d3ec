// Several paused tasks beside each other: their stacks as one tree, and their variables, with what differs marked.

import { classes, frames, framesOf, tree } from './fold.js';
import { json } from './relay.js';
import { members, title } from './stop.js';
import { make, time, write } from './text.js';
import { shown } from './value.js';

/** Tasks that are looked at, and of these so many at a time: the relay has four such places for one person. */
const MOST = 64;
const AT_ONCE = 3;
/** Columns beside each other, and answers to one variable that are shown at once. */
const SHOWN = 4;

/** Whose something is. A name without a rank may be that of several. */
const whose = (rows) => members(rows, (one) => `${title(one)} ${one.id}`);

/** The sign and the word for what is not as most have it, since a colour is seen by some alone. */
const differs = () => make('span', { class: 'word', title: 'Differs from most' }, '≠ ', make('span', { class: 'unseen' }, 'differs from most '));

function table(words, rows, label) {
  const head = make('tr', {}, ...words.map((word) => make('th', { scope: 'col' }, word)));
  return make('div', { class: 'wide', role: 'region', tabindex: '0', 'aria-label': label }, make('table', {}, make('thead', {}, head), make('tbody', {}, ...rows)));
}

function row(name, ...cells) {
  return make('tr', {}, make('th', { scope: 'row' }, name), ...cells);
}

/** `variables` with a column for each of the classes `columns`. */
function beside(variables, columns, label) {
  const cell = ({ answers }, [member]) => {
    const { text, rows } = answers.find((one) => one.rows.includes(member));
    const isOdd = rows.length < answers.at(-1).rows.length;
    return make('td', { class: isOdd ? 'odd' : null }, isOdd ? differs() : null, shown(text));
  };
  const rows = variables.map((one) => row(one.name, ...columns.map((column) => cell(one, column))));
  return table(['Variable', ...columns.map(whose)], rows, label);
}

/** `variables` with whose answers below each other, where there are too many for columns. */
function below(variables, label) {
  const answer = ({ text, rows }) => make('div', { class: 'answer' }, make('span', { class: 'whose' }, whose(rows)), shown(text));
  const cell = ({ answers }) => {
    const all = answers.map(answer);
    if (all.length <= SHOWN + 1) return make('td', {}, ...all);
    return make('td', {}, ...all.slice(0, SHOWN), make('details', {}, make('summary', { class: 'hint' }, `${all.length - SHOWN} more values`), ...all.slice(SHOWN)));
  };
  return table(['Variable', 'Values, by task'], variables.map((one) => row(one.name, cell(one))), label);
}

/** What differs between the `variables` of `rows`: those with few answers beside each other, as far as there is room. */
function differing(variables, rows, frame) {
  const few = variables.filter(({ answers }) => answers.length <= SHOWN && answers.length < rows.length);
  const columns = classes(rows, few);
  const isBeside = few.length > 0 && columns.length <= SHOWN;
  const others = isBeside ? variables.filter((one) => !few.includes(one)) : variables;
  return [
    isBeside ? beside(few, columns, `What differs in ${frame}`) : null,
    others.length > 0 ? below(others, `What is another one for each in ${frame}`) : null,
  ];
}

function branch(nodes, all) {
  const item = ({ call, rows, calls }) => make('li', {}, rows.length < all / 2 ? differs() : null, make('span', { class: rows.length < all / 2 ? 'odd' : null }, call), ' ', make('span', { class: 'whose' }, whose(rows)), calls.length > 0 ? branch(calls, all) : null);
  return make('ul', { class: 'tree' }, ...nodes.map(item));
}

export class Comparison {
  constructor(rows) {
    this.rows = rows.slice(0, MOST);
    this.heading = make('h2', { tabindex: '-1' }, `${rows.length} tasks compared`);
    const cut = rows.length > MOST ? `The first ${MOST} of ${rows.length} are looked at. ` : '';
    const again = make('button', { type: 'button', onclick: () => this.look() }, 'Look again');
    this.told = make('p', { class: 'told', role: 'status' });
    this.failed = make('div');
    this.shown = make('div', { class: 'shown' });
    this.element = make('article', { class: 'task' }, this.heading, make('p', { class: 'hint' }, `${cut}They stay as they are.`), make('div', { class: 'buttons' }, again), this.told, this.failed, this.shown);
  }

  /** Looks at each, and shows them together. */
  async look() {
    const [waiting, looks, failed] = [[...this.rows], [], []];
    const turn = Symbol('a look');
    this.turn = turn;
    const next = async () => {
      for (let row; this.turn === turn && (row = waiting.shift()); ) {
        write(this.told, `Looking: ${looks.length + failed.length} of ${this.rows.length} …`);
        try {
          const { threads } = await json('v1/snapshot', { method: 'POST', body: { id: row.id }, patience: 60_000 });
          looks.push({ row, frames: framesOf(threads) });
        } catch (error) {
          failed.push(make('li', {}, `${title(row)}: ${error.message}`));
        }
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, next));
    if (this.turn !== turn) return;
    this.told.replaceChildren(`${looks.length} as they stood `, time(Date.now()), ' ago.');
    this.failed.replaceChildren(...(failed.length > 0 ? [make('details', { class: 'trouble' }, make('summary', {}, `${failed.length} could not be looked at`), make('ul', {}, ...failed))] : []));
    this.shown.replaceChildren(...(looks.length > 0 ? this.together(looks) : []));
  }

  /** The elements that show `looks` together. */
  together(looks) {
    const sorted = looks.sort((a, b) => this.rows.indexOf(a.row) - this.rows.indexOf(b.row));
    const all = frames(sorted).filter(({ variables, alike }) => variables.length + alike.length > 0);
    const first = all.findIndex(({ variables }) => variables.length > 0);
    const each = all.map(({ frame, rows, variables, alike }, at) => {
      const differ = variables.length > 0 ? `${variables.length} differ` : 'nothing differs';
      const summary = make('summary', {}, make('span', { class: 'name' }, frame), ' ', make('span', { class: 'whose' }, whose(rows)), ` · ${differ}`);
      const same = alike.length > 0 ? make('details', { class: 'frame' }, make('summary', {}, `${alike.length} alike`), beside(alike, [rows], `What is alike in ${frame}`)) : null;
      return make('details', { class: 'frame', open: at === first }, summary, ...differing(variables, rows, frame), same);
    });
    return [make('h3', {}, 'Where they stand'), branch(tree(sorted), sorted.length), make('h3', {}, 'Variables'), ...each];
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
