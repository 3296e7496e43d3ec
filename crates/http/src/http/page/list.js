// The paused tasks: which of them are shown, in which order, and what is done with several at once.

import { letRun, park } from './actions.js';
import { Grid } from './grid.js';
import { explained, name, place, places, since, status, texts, timesOut, title } from './stop.js';
import { mayPrompt } from './terminal.js';
import { brief, find, holds, make, setTime, time, write } from './text.js';

/** Changes that come within so long are shown together, in milliseconds. */
const TOGETHER = 40;
/** How often what is left of a park is shown anew. */
const EVERY = 10_000;

const letters = new Intl.Collator(undefined, { numeric: true });
/** Orders rows by the text that `of` gives, by a number, and by rank, of which those without one are last. */
export const compareText = (of) => (a, b) => letters.compare(of(a), of(b));
export const compareTime = (of) => (a, b) => of(a) - of(b);
export const compareRank = (a, b) => (a.rank ?? 1e9) - (b.rank ?? 1e9);
/** The one that has waited longest first. */
const byAge = (a, b) => a.first_seen - b.first_seen || (a.id < b.id ? -1 : 1);

/** Shows `row`'s pill in `element`. */
export function showStatus(element, row, me) {
  const { kind, word } = status(row, me);
  let pill = element.querySelector('.pill');
  if (!pill) element.append((pill = make('span', { class: 'pill' })));
  write(pill, word);
  pill.title = explained(row, me);
  pill.dataset.kind = kind;
}

/** Shows in `element` how long the collectives that wait for `row` still wait, where that is known. */
export function showLeft(element, row, words) {
  const at = timesOut(row);
  let left = element.querySelector('.left');
  if (at == null) return left?.remove();
  if (!left) element.append((left = make('span', { class: 'left' })));
  const isOver = at <= Date.now();
  left.title = 'Until collectives that wait for it time out';
  if (isOver) return write(left, words ? 'collectives have timed out' : 'timed out');
  if (!words) return write(left, `${brief((at - Date.now()) / 1000)} left`);
  if (!left.firstElementChild) left.replaceChildren('collectives time out in ', time(at));
  setTime(left.firstElementChild, at);
}

/** Shows in `element` what `row` is called, and its actor, of which less is lost where there is no room. */
export function showName(element, row) {
  if (!element.firstElementChild) element.append(make('span'), make('span', { class: 'actor' }));
  const [called, actor] = element.children;
  write(called, name(row));
  write(actor, row.actor_name ?? '');
  element.classList.toggle('ranked', row.rank != null);
}

/** Shows since when in `element`. */
export function showAge(element, row) {
  if (!element.firstElementChild) element.append(make('time', { 'aria-live': 'off' }));
  setTime(element.firstElementChild, since(row));
}

/** The job and cluster of `row`, by which they stand together. */
export function job(row, clusters) {
  const known = row.submission_id || row.job_id;
  const text = known ? `Job ${known}` : 'Without a job';
  return clusters > 1 ? `${text} on ${row.cluster}` : text;
}

export class Stops {
  /** Of `me`; `opened(row, focus)` shows one, `compare(rows)` several beside each other, `prompt(rows)` one prompt for them. */
  constructor(me, { opened, compare, prompt, counted }) {
    Object.assign(this, { me, opened, compare, prompt, counted, rows: new Map(), old: new Set(), filter: '', clusters: 1 });
    const text = (of) => (cell, row) => write(cell, of(row));
    this.grid = new Grid(find('stops'), {
      label: 'Paused tasks',
      columns: [
        { id: 'status', word: 'Status', show: (cell, row) => this.standing(cell, row), compare: compareText((row) => status(row, me.subject).word) },
        { id: 'name', word: 'Task', show: showName, compare: compareText(title) },
        { id: 'rank', word: 'Rank', show: text((row) => row.rank ?? ''), compare: compareRank },
        { id: 'place', word: 'Where', show: text(place), compare: compareText(place) },
        { id: 'node', word: 'Node', show: text((row) => row.node_ip), compare: compareText((row) => row.node_ip) },
        { id: 'holds', word: 'Holds', show: text(holds), compare: compareText(holds) },
        { id: 'age', word: 'Age', show: showAge, compare: compareTime((row) => row.first_seen) },
      ],
      key: (row) => row.id,
      name: title,
      group: (row) => job(row, this.clusters),
      first: byAge,
      order: (a, b) => compareRank(a, b) || byAge(a, b),
      head: (element, rows) => this.head(element, rows),
      open: (row, focus) => opened(row, { focus, byPerson: true }),
      chosen: (rows) => this.chosen(rows),
      press: (key, rows, group) => this.press(key, rows, group),
    });
    const bar = find('bar');
    const act = (word, run, kind) => make('button', { type: 'button', class: kind, onclick: () => run(this.picked) }, word);
    this.many = make('strong', { class: 'number' });
    this.release = act('Continue', (rows) => letRun(rows, me), 'grave');
    this.ask = act('Prompt', prompt);
    bar.replaceChildren(this.many, this.release, act('Park …', (rows) => park(rows, me)), act('Compare', compare), this.ask, act('Clear', () => this.grid.chooseNone(), 'quiet'));
    find('filter').addEventListener('input', () => this.narrow(find('filter').value));
    find('filter').addEventListener('keydown', (event) => {
      if (event.key === 'ArrowDown' || event.key === 'Enter') this.grid.go(0);
      else if (event.key === 'Escape') this.narrow((find('filter').value = ''));
      else return;
      event.preventDefault();
    });
    setInterval(() => document.hidden || this.grid.paint(), EVERY);
  }

  /** How `row` is, and how long others still wait for it. */
  standing(cell, row) {
    showStatus(cell, row, this.me.subject);
    showLeft(cell, row, false);
  }

  get mayRelease() {
    return ['debug', 'terminal', 'admin'].some((scope) => this.me.scopes.has(scope));
  }

  /** The line of a job: how many, where they stand, and what is done with all of them. */
  head(element, rows) {
    if (!element.firstElementChild) {
      const act = (word, label, run, kind) => make('button', { type: 'button', class: `small ${kind}`, title: label, onclick: () => run(this.grid.rowsAt(element)) }, word);
      element.append(
        make('span', { class: 'name' }),
        make('span', { class: 'count' }),
        make('span', { class: 'where' }),
        act('Compare', 'Stacks and variables beside each other', this.compare, 'quiet'),
        act('Prompt', 'One prompt for all of them', this.prompt, 'quiet'),
        act('Continue all', 'Lets all of them run on', (all) => letRun(all, this.me), 'grave'),
      );
    }
    const [called, count, where, compare, prompt, release] = element.children;
    write(called, job(rows[0], this.clusters));
    write(count, `${rows.length}`);
    write(where, places(rows));
    where.title = places(rows);
    compare.hidden = rows.length < 2;
    prompt.hidden = rows.length < 2 || !mayPrompt(this.me);
    release.hidden = !this.mayRelease;
  }

  chosen(rows) {
    this.picked = rows;
    find('bar').hidden = rows.length === 0;
    this.release.hidden = !this.mayRelease;
    this.ask.hidden = !mayPrompt(this.me);
    write(this.many, `${rows.length} selected`);
  }

  /** What another key does with `rows` of `group`, or with those that are selected. */
  press(key, rows, group) {
    const isPicked = this.picked?.length > 0;
    const meant = isPicked ? this.picked : rows;
    const keys = {
      j: () => this.grid.go(this.grid.place + 1),
      k: () => this.grid.go(this.grid.place - 1),
      x: () => this.grid.choose(this.grid.active),
      c: () => this.mayRelease && letRun(meant, this.me),
      p: () => park(meant, this.me),
      d: () => this.compare(isPicked ? meant : group),
      a: () => mayPrompt(this.me) && this.prompt(isPicked ? meant : group),
      '/': () => find('filter').focus(),
    };
    return keys[key];
  }

  all(rows) {
    this.rows = new Map(rows.map((row) => [row.id, this.marked(row)]));
    this.arrange();
  }

  /** Shows `row`; whether it is new. */
  one(row) {
    const isNew = !this.rows.has(row.id);
    this.rows.set(row.id, this.marked(row));
    this.later();
    return isNew;
  }

  over(row) {
    this.rows.delete(row.id);
    this.later();
  }

  later() {
    this.timer ??= setTimeout(() => this.arrange(), TOGETHER);
  }

  /** Marks what is of clusters whose head does not answer. */
  aged(clusters) {
    this.old = new Set(clusters);
    for (const row of this.rows.values()) this.marked(row);
    this.grid.paint();
  }

  marked(row) {
    row.old = this.old.has(row.cluster);
    since(row);
    return row;
  }

  narrow(filter) {
    this.filter = filter.trim().toLowerCase();
    this.arrange();
    write(find('news'), `${this.counts.fitting} of ${this.counts.total} tasks`);
  }

  fits(row) {
    row.found ??= texts(row, this.me.subject).join('\n').toLowerCase();
    return row.found.includes(this.filter);
  }

  /** Shows those that fit the filter. */
  arrange() {
    clearTimeout(this.timer);
    this.timer = null;
    const all = [...this.rows.values()];
    this.clusters = new Set(all.map((row) => row.cluster)).size;
    const fitting = this.filter ? all.filter((row) => this.fits(row)) : all;
    this.grid.set(fitting);
    find('stops').hidden = fitting.length === 0;
    find('none').hidden = fitting.length > 0;
    write(find('none'), all.length === 0 ? 'No task is paused. One that reaches a breakpoint() shows up here by itself.' : 'Nothing fits the filter.');
    this.counts = { total: all.length, fitting: fitting.length };
    this.counted(this.counts);
  }

  /** The row that is the first. */
  get first() {
    return this.grid.lines.find((line) => line.row)?.row;
  }
}
