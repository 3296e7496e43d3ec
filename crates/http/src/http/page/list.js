// The list of paused tasks: filter, order, and actions on several tasks.

import { resumeTasks, park } from './actions.js';
import { Grid } from './grid.js';
import { jobName, statusDetails, name, locationText, locationSummary, startTime, status, searchTexts, timesOut, title } from './stop.js';
import { mayPrompt } from './terminal.js';
import { briefSpan, find, resourceText, make, setTime, time, write } from './text.js';

/** Changes within this time are shown together. */
const BATCH_DELAY_MS = 40;
/** How often the remaining park times are updated. */
const REFRESH_INTERVAL_MS = 10_000;

const letters = new Intl.Collator(undefined, { numeric: true });
/** Comparators by text, by number and by rank; rows without a rank are last. */
export const compareText = (of) => (a, b) => letters.compare(of(a), of(b));
export const compareTime = (of) => (a, b) => of(a) - of(b);
export const compareRank = (a, b) => (a.rank ?? 1e9) - (b.rank ?? 1e9);
/** The longest waiting task first. */
const byAge = (a, b) => a.first_seen - b.first_seen || (a.id < b.id ? -1 : 1);

/** Shows `row`'s pill in `element`. */
export function showStatus(element, row, me) {
  const { kind, word } = status(row, me);
  let pill = element.querySelector('.pill');
  if (!pill) element.append((pill = make('span', { class: 'pill' })));
  write(pill, word);
  pill.title = statusDetails(row, me);
  pill.dataset.kind = kind;
}

/** Shows in `element` when collectives that wait for `row` time out, if that is known. */
export function showTimeLeft(element, row, words) {
  const at = timesOut(row);
  let countdown = element.querySelector('.left');
  if (at == null) return countdown?.remove();
  if (!countdown) element.append((countdown = make('span', { class: 'left' })));
  const isOver = at <= Date.now();
  countdown.title = 'Until collectives that wait for it time out';
  if (isOver) return write(countdown, words ? 'collectives have timed out' : 'timed out');
  if (!words) return write(countdown, `${briefSpan((at - Date.now()) / 1000)} left`);
  if (!countdown.firstElementChild) countdown.replaceChildren('collectives time out in ', time(at));
  setTime(countdown.firstElementChild, at);
}

/** Shows the name and the actor of `row` in `element`. */
export function showName(element, row) {
  if (!element.firstElementChild) element.append(make('span'), make('span', { class: 'actor' }));
  const [nameCell, actor] = element.children;
  write(nameCell, name(row));
  write(actor, row.actor_name ?? '');
  element.classList.toggle('ranked', row.rank != null);
}

/** Shows the age of `row` in `element`. */
export function showAge(element, row) {
  if (!element.firstElementChild) element.append(make('time', { 'aria-live': 'off' }));
  setTime(element.firstElementChild, startTime(row));
}

/** The group of `row`: its job, and its cluster if there are several. */
export function job(row, clusters) {
  const known = jobName(row);
  const text = known ? `Job ${known}` : 'Without a job';
  return clusters > 1 ? `${text} on ${row.cluster}` : text;
}

export class Stops {
  /** `opened(row, focus)` shows a task, `compare(rows)` compares tasks, and `prompt(rows)` opens one prompt for them. */
  constructor(me, { opened, compare, prompt, counted }) {
    Object.assign(this, { me, opened, compare, prompt, counted, rows: new Map(), staleClusters: new Set(), filter: '', clusters: 1 });
    const text = (of) => (cell, row) => write(cell, of(row));
    this.grid = new Grid(find('stops'), {
      label: 'Paused tasks',
      columns: [
        { id: 'status', word: 'Status', show: (cell, row) => this.showState(cell, row), compare: compareText((row) => status(row, me.subject).word) },
        { id: 'name', word: 'Task', show: showName, compare: compareText(title) },
        { id: 'rank', word: 'Rank', show: text((row) => row.rank ?? ''), compare: compareRank },
        { id: 'place', word: 'Where', show: text(locationText), compare: compareText(locationText) },
        { id: 'node', word: 'Node', show: text((row) => row.node_ip), compare: compareText((row) => row.node_ip) },
        { id: 'holds', word: 'Holds', show: text(resourceText), compare: compareText(resourceText) },
        { id: 'age', word: 'Age', show: showAge, compare: compareTime((row) => row.first_seen) },
      ],
      key: (row) => row.id,
      name: title,
      group: (row) => job(row, this.clusters),
      first: byAge,
      order: (a, b) => compareRank(a, b) || byAge(a, b),
      head: (element, rows) => this.head(element, rows),
      open: (row, focus) => opened(row, { focus, byUser: true }),
      chosen: (rows) => this.chosen(rows),
      press: (key, rows, group) => this.press(key, rows, group),
    });
    const bar = find('bar');
    const actionButton = (word, run, kind) => make('button', { type: 'button', class: kind, onclick: () => run(this.picked) }, word);
    this.many = make('strong', { class: 'number' });
    this.release = actionButton('Continue', (rows) => resumeTasks(rows, me), 'grave');
    this.ask = actionButton('Prompt', prompt);
    bar.replaceChildren(this.many, this.release, actionButton('Park …', (rows) => park(rows, me)), actionButton('Compare', compare), this.ask, actionButton('Clear', () => this.grid.chooseNone(), 'quiet'));
    find('filter').addEventListener('input', () => this.setFilter(find('filter').value));
    find('filter').addEventListener('keydown', (event) => {
      if (event.key === 'ArrowDown' || event.key === 'Enter') this.grid.go(0);
      else if (event.key === 'Escape') this.setFilter((find('filter').value = ''));
      else return;
      event.preventDefault();
    });
    setInterval(() => document.hidden || this.grid.paint(), REFRESH_INTERVAL_MS);
  }

  /** Shows the status of `row`, and when collectives that wait for it time out. */
  showState(cell, row) {
    showStatus(cell, row, this.me.subject);
    showTimeLeft(cell, row, false);
  }

  get mayRelease() {
    return ['debug', 'terminal', 'admin'].some((scope) => this.me.scopes.has(scope));
  }

  /** The line of a job: number of tasks, their locations, and actions on all of them. */
  head(element, rows) {
    if (!element.firstElementChild) {
      const actionButton = (word, label, run, kind) => make('button', { type: 'button', class: `small ${kind}`, title: label, onclick: () => run(this.grid.rowsAt(element)) }, word);
      element.append(
        make('span', { class: 'name' }),
        make('span', { class: 'count' }),
        make('span', { class: 'where' }),
        actionButton('Compare', 'Stacks and variables beside each other', this.compare, 'quiet'),
        actionButton('Prompt', 'One prompt for all of them', this.prompt, 'quiet'),
        actionButton('Continue all', 'Lets all of them run on', (all) => resumeTasks(all, this.me), 'grave'),
      );
    }
    const [nameCell, count, where, compare, prompt, release] = element.children;
    write(nameCell, job(rows[0], this.clusters));
    nameCell.title = nameCell.textContent;
    write(count, `${rows.length}`);
    write(where, locationSummary(rows));
    where.title = locationSummary(rows);
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

  /** Returns the action of `key` on `rows` of `group`, or on the selected rows. */
  press(key, rows, group) {
    const isPicked = this.picked?.length > 0;
    const selected = isPicked ? this.picked : rows;
    const keys = {
      j: () => this.grid.go(this.grid.position + 1),
      k: () => this.grid.go(this.grid.position - 1),
      x: () => this.grid.choose(this.grid.active),
      c: () => this.mayRelease && resumeTasks(selected, this.me),
      p: () => park(selected, this.me),
      d: () => this.compare(isPicked ? selected : group),
      a: () => mayPrompt(this.me) && this.prompt(isPicked ? selected : group),
      '/': () => find('filter').focus(),
    };
    return keys[key];
  }

  all(rows) {
    this.rows = new Map(rows.map((row) => [row.id, this.prepare(row)]));
    this.arrange();
  }

  /** Shows `row`, and returns whether it is new. */
  update(row) {
    const isNew = !this.rows.has(row.id);
    this.rows.set(row.id, this.prepare(row));
    this.scheduleArrange();
    return isNew;
  }

  remove(row) {
    this.rows.delete(row.id);
    this.scheduleArrange();
  }

  scheduleArrange() {
    this.timer ??= setTimeout(() => this.arrange(), BATCH_DELAY_MS);
  }

  /** Marks the rows of clusters whose head does not answer. */
  markStale(clusters) {
    this.staleClusters = new Set(clusters);
    for (const row of this.rows.values()) this.prepare(row);
    this.grid.paint();
  }

  prepare(row) {
    row.isStale = this.staleClusters.has(row.cluster);
    startTime(row);
    return row;
  }

  setFilter(filter) {
    this.filter = filter.trim().toLowerCase();
    this.arrange();
    write(find('news'), `${this.counts.matching} of ${this.counts.total} tasks`);
  }

  matches(row) {
    row.searchText ??= searchTexts(row, this.me.subject).join('\n').toLowerCase();
    return row.searchText.includes(this.filter);
  }

  /** Shows the rows that match the filter. */
  arrange() {
    clearTimeout(this.timer);
    this.timer = null;
    const all = [...this.rows.values()];
    this.clusters = new Set(all.map((row) => row.cluster)).size;
    const matching = this.filter ? all.filter((row) => this.matches(row)) : all;
    this.grid.set(matching);
    find('stops').hidden = matching.length === 0;
    find('none').hidden = matching.length > 0;
    write(find('none'), all.length === 0 ? 'No task is paused. One that reaches a breakpoint() shows up here by itself.' : 'Nothing fits the filter.');
    this.counts = { total: all.length, matching: matching.length };
    this.counted(this.counts);
  }

  /** The first row. */
  get first() {
    return this.grid.lines.find((line) => line.row)?.row;
  }
}
