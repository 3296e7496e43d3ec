// The list of what waits: one item for each breakpoint, kept in place while it changes.

import { clean, clock, holds, make, span, write } from './text.js';
import { Task } from './task.js';

/** Items that are shown; a filter finds the others. */
const MOST = 500;

/** The name of a task, with its actor, its rank and what it has raised. */
export function title(row) {
  let text = row.name || `worker ${String(row.worker_id ?? '').slice(0, 8)}`;
  if (row.actor_name) text += ` [${row.actor_name}]`;
  if (row.rank != null) text += ` rank ${row.rank}`;
  if (row.reason === 'post_mortem') text += ` (${row.exception || 'post-mortem'})`;
  return text;
}

/** Where it stands: `train.py:26`. */
export function place(row) {
  return row.location ? `${row.location.file}:${row.location.line}` : '';
}

/** Who has it, or how it is. */
export function state(row) {
  const holder = row.holder;
  const who = holder?.client || holder?.subject;
  if (holder?.parked_until) {
    const until = clock(new Date(holder.parked_until * 1000));
    return `parked for ${holder.subject || holder.client || 'a client'} until ${until}`;
  }
  if (who) {
    const by = holder.subject && holder.subject !== who ? `${who}, ${holder.subject}` : who;
    return row.task_ended ? `${by}; its task has ended` : by;
  }
  return row.why ? `${row.state}: ${row.why}` : row.state;
}

function fits(row, filter) {
  if (!filter) return true;
  const texts = [row.id, title(row), place(row), row.node_ip, row.cluster, row.job_id, row.task_id, row.state, state(row), holds(row)];
  return texts.some((text) => String(text ?? '').toLowerCase().includes(filter));
}

/** First what nobody holds, and of each what has waited longest. What is open stays where it is, whoever holds it. */
function order(one, other) {
  const [a, b] = [one.row, other.row];
  const last = (item) => Number(Boolean(item.row.holder) && !item.task);
  return last(one) - last(other) || a.first_seen - b.first_seen || (a.id < b.id ? -1 : 1);
}

/** One item of the list. */
class Item {
  constructor(row) {
    this.name = make('span', { class: 'name' });
    this.place = make('span', { class: 'place' });
    this.button = make('button', { type: 'button', class: 'open', 'aria-expanded': 'false', onclick: () => this.toggle() }, this.name, this.place);
    this.node = make('span');
    this.waiting = make('span', { class: 'number' });
    this.holds = make('span', { class: 'holds' });
    this.state = make('span', { class: 'badge' });
    const fact = (word, value, kind) => make('p', { class: kind }, make('span', { class: 'word' }, word), ' ', value);
    this.details = make('div', { class: 'details', id: `of-${row.id}`, hidden: true });
    this.button.setAttribute('aria-controls', this.details.id);
    this.element = make(
      'li',
      {},
      make('div', { class: 'line' }, make('h3', {}, this.button), fact('on', this.node, 'node'), make('p', { class: 'waiting' }, make('span', { class: 'word' }, 'for'), ' ', this.waiting, ' ', this.holds), make('p', { class: 'state' }, this.state)),
      this.details,
    );
    this.show(row);
  }

  /** Shows `row` from now on. */
  show(row) {
    this.row = row;
    this.began = performance.now() - (row.waiting_seconds ?? 0) * 1000;
    write(this.name, title(row));
    write(this.place, place(row));
    write(this.node, row.pid ? `${row.node_ip} pid ${row.pid}` : row.node_ip);
    write(this.holds, holds(row) && `with ${holds(row)}`);
    write(this.state, state(row));
    this.element.dataset.state = clean(row.state);
    this.tick();
    this.task?.show(row);
  }

  tick() {
    write(this.waiting, span((performance.now() - this.began) / 1000));
  }

  toggle() {
    const opens = this.details.hidden;
    this.details.hidden = !opens;
    this.button.setAttribute('aria-expanded', String(opens));
    if (opens) {
      this.task = new Task(this.details, this.row);
    } else {
      this.close();
    }
  }

  close() {
    this.task?.close();
    this.task = null;
  }
}

/** The list, in the element `list`. */
export class Rows {
  constructor(list) {
    this.list = list;
    this.items = new Map();
    this.filter = '';
    this.old = new Set();
    setInterval(() => this.tick(), 1000);
  }

  get size() {
    return this.items.size;
  }

  all(rows) {
    const ids = new Set(rows.map((row) => row.id));
    for (const id of [...this.items.keys()].filter((id) => !ids.has(id))) this.drop(id);
    for (const row of rows) this.put(row);
    return this.arrange();
  }

  one(row) {
    const isNew = !this.items.has(row.id);
    this.put(row);
    return { isNew, ...this.arrange() };
  }

  over(row) {
    this.drop(row.id);
    return this.arrange();
  }

  /** Opens the item of the breakpoint `id`, and goes there; whether there is one. */
  reveal(id) {
    const item = this.items.get(id);
    if (!item) return false;
    if (!item.task) item.toggle();
    this.arrange();
    item.element.scrollIntoView({ block: 'nearest' });
    item.button.focus({ preventScroll: true });
    return true;
  }

  /** Marks what is of clusters whose head does not answer. */
  aged(clusters) {
    this.old = new Set(clusters);
    for (const item of this.items.values()) this.mark(item);
  }

  narrow(filter) {
    this.filter = filter.trim().toLowerCase();
    return this.arrange();
  }

  put(row) {
    const known = this.items.get(row.id);
    if (known) {
      known.show(row);
    } else {
      this.items.set(row.id, new Item(row));
    }
    this.mark(this.items.get(row.id));
  }

  mark(item) {
    item.element.classList.toggle('old', this.old.has(item.row.cluster));
  }

  drop(id) {
    const item = this.items.get(id);
    if (!item) return;
    // What somebody reads stays until it is closed: the end of a terminal, above all.
    if (item.task?.isRead()) {
      item.show({ ...item.row, holder: null, state: 'gone', why: 'it waits no more' });
      item.task.onClosed(() => {
        // It may have stopped again meanwhile.
        if (item.row.state === 'gone') this.items.delete(id);
        this.arrange();
      });
      return;
    }
    item.close();
    this.items.delete(id);
  }

  /** Puts the items into their order. */
  arrange() {
    const all = [...this.items.values()];
    const fitting = all.filter((item) => fits(item.row, this.filter) || item.task).sort(order);
    const shown = fitting.slice(0, MOST).map((item) => item.element);
    const active = document.activeElement;
    const keep = new Set(shown);
    for (const element of [...this.list.children]) if (!keep.has(element)) element.remove();
    let at = this.list.firstElementChild;
    for (const element of shown) {
      if (element === at) at = at.nextElementSibling;
      else this.list.insertBefore(element, at);
    }
    // Moving an element takes the focus away from it.
    if (active !== document.activeElement && this.list.contains(active)) active.focus({ preventScroll: true });
    return { total: all.length, fitting: fitting.length, shown: shown.length };
  }

  tick() {
    if (document.hidden) return;
    for (const item of this.items.values()) if (item.element.isConnected) item.tick();
  }
}
