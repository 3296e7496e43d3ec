// A list that a person asks for, such as of what runs: the relay is asked when it is wanted, and never by the page itself.

import { Grid } from './grid.js';
import { job } from './list.js';
import { Pane } from './pane.js';
import { json } from './relay.js';
import { since, texts, title } from './stop.js';
import { find, make, time, write } from './text.js';

export class AskedList {
  /**
   * In the element called `id` and those named after it, with the pane `pane`, for `me`. `kind` has its `label`, `columns` and
   * `order(a, b)` within a group; `path`, where it is asked for; `key(row)`; `open(row)`, which gives what is shown of one;
   * `none`, what is said where there is none; and `says(answer)`, what is said of an answer.
   */
  constructor(id, pane, me, kind) {
    Object.assign(this, { id, me, kind, rows: [], clusters: 1 });
    this.grid = new Grid(find(id), {
      label: kind.label,
      columns: kind.columns,
      key: kind.key,
      name: title,
      group: (row) => this.named(row),
      first: kind.first,
      order: kind.order,
      head: (element, rows) => this.head(element, rows),
      open: (row, focus) => this.open(row, focus),
      press: (pressed) => ({ j: () => this.grid.go(this.grid.place + 1), k: () => this.grid.go(this.grid.place - 1) })[pressed],
    });
    this.pane = new Pane(find(pane), (open) => this.grid.focus(open));
    find(`ask-${id}`).addEventListener('click', () => this.ask());
    find(`filter-${id}`).addEventListener('input', () => this.arrange());
  }

  /** What those are called that stand together with `row`. */
  named(row) {
    return `${job(row, this.clusters)}: ${row.group}`;
  }

  head(element, rows) {
    if (!element.firstElementChild) element.append(make('span', { class: 'name' }), make('span', { class: 'count' }));
    const [called, count] = element.children;
    write(called, this.named(rows[0]));
    write(count, `${rows.length}`);
  }

  /** Asks for it. */
  async ask() {
    const told = find(`${this.id}-told`);
    write(told, 'Asking …');
    try {
      const answer = await json(this.kind.path, { patience: 30_000 });
      const troubles = answer.clusters.filter((cluster) => cluster.trouble).map((cluster) => ` Cluster ${cluster.name}: ${cluster.trouble}.`);
      const more = answer.total > answer.tasks.length ? ` The first ${answer.tasks.length} of ${answer.total}.` : '';
      this.rows = answer.tasks;
      told.replaceChildren(this.kind.says(answer), time(Date.now()), ` ago.${more}${troubles.join('')}`);
    } catch (error) {
      write(told, error.message);
    }
    this.rows.forEach(since);
    this.clusters = new Set(this.rows.map((row) => row.cluster)).size;
    this.arrange();
  }

  arrange() {
    const filter = find(`filter-${this.id}`).value.trim().toLowerCase();
    const fits = (row) => [...texts(row, this.me.subject), row.group, row.submission_id, row.exception].join('\n').toLowerCase().includes(filter);
    const fitting = filter ? this.rows.filter(fits) : this.rows;
    this.grid.set(fitting);
    find(this.id).hidden = fitting.length === 0;
    find(`no-${this.id}`).hidden = fitting.length > 0;
    write(find(`no-${this.id}`), this.rows.length === 0 ? this.kind.none : 'Nothing fits the filter.');
    write(find(`${this.id}-count`), this.rows.length ? `${this.rows.length}` : '');
  }

  open(row, focus) {
    if (this.kind.leads?.(row)) return;
    const key = this.kind.key(row);
    const task = this.pane.show(key, () => this.kind.open(row), focus || this.pane.isStacked);
    this.grid.mark(key);
    task.openedByPerson();
  }

  clear() {
    this.rows = [];
    this.pane.clear();
    this.arrange();
  }
}
