// A list that is loaded only on request of the user, such as the running tasks.

import { Grid } from './grid.js';
import { job } from './list.js';
import { Pane } from './pane.js';
import { json } from './relay.js';
import { startTime, searchTexts, title } from './stop.js';
import { clusterTroubles, find, make, time, write } from './text.js';

export class OnDemandList {
  /**
   * Uses the element `id` and those named after it, and the pane `pane`. `kind` has `label`, `columns` and `order(a, b)` within
   * a group; `path` of the request; `key(row)`; `open(row)`, which creates the view of a row; `none`, the text of an empty list;
   * and `summary(answer)`. `openJob(job, cluster)` creates the view of a job, and `jobOf(row)` names it; without them jobs have no view.
   */
  constructor(id, pane, me, kind) {
    Object.assign(this, { id, me, kind, rows: [], clusters: 1 });
    this.grid = new Grid(find(id), {
      label: kind.label,
      columns: kind.columns,
      key: kind.key,
      name: title,
      group: (row) => this.groupName(row),
      first: kind.first,
      order: kind.order,
      head: (element, rows) => this.head(element, rows),
      open: (row, focus) => this.open(row, focus),
      press: (pressed) => ({ j: () => this.grid.go(this.grid.position + 1), k: () => this.grid.go(this.grid.position - 1) })[pressed],
    });
    this.pane = new Pane(find(pane), (open) => this.grid.focus(open));
    find(`ask-${id}`).addEventListener('click', () => this.load());
    find(`filter-${id}`).addEventListener('input', () => this.arrange());
  }

  /** The name of the group of `row`. */
  groupName(row) {
    return `${job(row, this.clusters)}: ${row.group}`;
  }

  head(element, rows) {
    if (!element.firstElementChild) {
      element.append(make('span', { class: 'name' }), make('span', { class: 'count' }));
      if (this.kind.openJob && this.me.scopes.has('view') && this.kind.jobOf(rows[0])) {
        const open = () => {
          const [row] = this.grid.rowsAt(element);
          this.openJob(this.kind.jobOf(row), row.cluster);
        };
        element.append(make('button', { type: 'button', class: 'small quiet', title: 'What the job waits for, or what differs between its tasks', onclick: open }, 'Why?'));
      }
    }
    const [name, count] = element.children;
    write(name, this.groupName(rows[0]));
    write(count, `${rows.length}`);
  }

  /** Loads the list. */
  async load() {
    const status = find(`${this.id}-told`);
    write(status, 'Asking …');
    try {
      const answer = await json(this.kind.path, { timeout: 30_000 });
      const more = answer.total > answer.tasks.length ? ` The first ${answer.tasks.length} of ${answer.total}.` : '';
      this.rows = answer.tasks;
      status.replaceChildren(this.kind.summary(answer), time(Date.now()), ` ago.${more}${clusterTroubles(answer.clusters)}`);
    } catch (error) {
      write(status, error.message);
    }
    this.rows.forEach(startTime);
    this.clusters = new Set(this.rows.map((row) => row.cluster)).size;
    this.arrange();
  }

  arrange() {
    const filter = find(`filter-${this.id}`).value.trim().toLowerCase();
    const matches = (row) => [...searchTexts(row, this.me.subject), row.group, row.submission_id, row.exception].join('\n').toLowerCase().includes(filter);
    const matching = filter ? this.rows.filter(matches) : this.rows;
    this.grid.set(matching);
    find(this.id).hidden = matching.length === 0;
    find(`no-${this.id}`).hidden = matching.length > 0;
    write(find(`no-${this.id}`), this.rows.length === 0 ? this.kind.none : 'Nothing fits the filter.');
    write(find(`${this.id}-count`), this.rows.length ? `${this.rows.length}` : '');
  }

  open(row, focus) {
    if (this.kind.openPaused?.(row)) return;
    const key = this.kind.key(row);
    const task = this.pane.show(key, () => this.kind.open(row), focus || this.pane.isStacked);
    this.grid.mark(key);
    task.openedByUser();
  }

  /** Opens the view of `job`. */
  openJob(job, cluster) {
    const view = this.pane.show(`job ${job} on ${cluster}`, () => this.kind.openJob(job, cluster), true);
    this.grid.mark(null);
    view.openedByUser();
  }

  clear() {
    this.rows = [];
    this.pane.clear();
    this.arrange();
  }
}
