// The tasks that run. Ray is asked for them when a person wants to see them, and never by the page itself.

import { Grid } from './grid.js';
import { compareRank, compareText, compareTime, job, showAge, showName } from './list.js';
import { Pane } from './pane.js';
import { json } from './relay.js';
import { RunningTask } from './run.js';
import { since, texts, title } from './stop.js';
import { find, holds, make, time, write } from './text.js';

/** Rows that are asked for. */
const MOST = 10_000;

const byAge = (a, b) => since(a) - since(b) || (a.worker_id < b.worker_id ? -1 : 1);
const key = (row) => `${row.cluster} ${row.worker_id} ${row.task_id}`;

export class RunningTasks {
  /** Of `me`; `paused(id)` shows one that waits at a breakpoint. */
  constructor(me, paused) {
    Object.assign(this, { me, rows: [], clusters: 1 });
    const text = (of) => (cell, row) => write(cell, of(row));
    const status = (row) => (row.breakpoint ? 'paused' : 'running');
    this.grid = new Grid(find('runs'), {
      label: 'Running tasks',
      columns: [
        { id: 'status', word: 'Status', show: (cell, row) => this.pill(cell, status(row)), compare: compareText(status) },
        { id: 'name', word: 'Task', show: showName, compare: compareText(title) },
        { id: 'rank', word: 'Rank', show: text((row) => row.rank ?? ''), compare: compareRank },
        { id: 'place', word: 'Node', show: text((row) => row.node_ip), compare: compareText((row) => row.node_ip ?? '') },
        { id: 'holds', word: 'Holds', show: text(holds), compare: compareText(holds) },
        { id: 'age', word: 'Runs for', show: showAge, compare: compareTime(since) },
      ],
      key,
      name: title,
      group: (row) => `${job(row, this.clusters)}: ${row.group}`,
      first: byAge,
      order: (a, b) => compareRank(a, b) || byAge(a, b),
      head: (element, rows) => this.head(element, rows),
      open: (row, focus) => (row.breakpoint ? paused(row.breakpoint) : this.open(row, focus)),
      press: (pressed) => ({ j: () => this.grid.go(this.grid.place + 1), k: () => this.grid.go(this.grid.place - 1) })[pressed],
    });
    this.pane = new Pane(find('run'), (open) => this.grid.focus(open));
    find('ask-runs').addEventListener('click', () => this.ask());
    find('filter-runs').addEventListener('input', () => this.arrange());
  }

  pill(cell, word) {
    if (!cell.firstElementChild) cell.append(make('span', { class: 'pill' }));
    write(cell.firstElementChild, word);
    cell.firstElementChild.dataset.kind = word;
  }

  head(element, rows) {
    if (!element.firstElementChild) element.append(make('span', { class: 'name' }), make('span', { class: 'count' }));
    const [called, count] = element.children;
    write(called, `${job(rows[0], this.clusters)}: ${rows[0].group}`);
    write(count, `${rows.length}`);
  }

  /** Asks Ray what runs. */
  async ask() {
    write(find('runs-told'), 'Asking Ray …');
    try {
      const { tasks, total, clusters } = await json(`v1/tasks?limit=${MOST}`, { patience: 30_000 });
      const troubles = clusters.filter((cluster) => cluster.trouble).map((cluster) => ` Cluster ${cluster.name}: ${cluster.trouble}.`);
      const more = total > tasks.length ? ` The first ${tasks.length} of ${total}.` : '';
      this.rows = tasks;
      find('runs-told').replaceChildren('As Ray said ', time(Date.now()), ` ago.${more}${troubles.join('')}`);
    } catch (error) {
      write(find('runs-told'), error.message);
    }
    this.rows.forEach(since);
    this.clusters = new Set(this.rows.map((row) => row.cluster)).size;
    this.arrange();
  }

  arrange() {
    const filter = find('filter-runs').value.trim().toLowerCase();
    const fits = (row) => [...texts(row, this.me.subject), row.group, row.submission_id].join('\n').toLowerCase().includes(filter);
    const fitting = filter ? this.rows.filter(fits) : this.rows;
    this.grid.set(fitting);
    find('runs').hidden = fitting.length === 0;
    find('no-runs').hidden = fitting.length > 0;
    write(find('no-runs'), this.rows.length === 0 ? 'No task runs, as far as Ray says.' : 'Nothing fits the filter.');
    write(find('runs-count'), this.rows.length ? `${this.rows.length}` : '');
  }

  open(row, focus) {
    const task = this.pane.show(key(row), () => new RunningTask(row, this.me), focus || this.pane.isStacked);
    this.grid.mark(key(row));
    task.openedByPerson();
  }

  clear() {
    this.rows = [];
    this.pane.clear();
    this.arrange();
  }
}
