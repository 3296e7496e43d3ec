// A table with foldable groups: a tree grid for the keyboard and for screen readers. Only visible rows are in the document, so
// that ten thousand rows cost no more than twenty.

import { make } from './text.js';

/** Rendered lines above and below the visible ones. */
const OVERSCAN = 12;

export class Grid {
  /**
   * Renders into `root`. `kind` has `label`; `columns`, each with `id`, `word`, `show(cell, row)` and `compare(a, b)`; `key(row)`,
   * `name(row)`; `group(row)`, a text; `head(element, rows)`, which shows a group; `first(a, b)` and `order(a, b)`, the order of
   * groups by their first rows and within a group; `open(row)`; optionally `chosen(rows)`, which enables selection; and
   * `press(key, rows, group)` for other keys.
   */
  constructor(root, kind) {
    Object.assign(this, { root, kind, rows: [], lines: [], at: new Map(), nodes: new Map() });
    this.folded = new Set();
    this.chosen = new Set();
    this.sort = { by: null, down: false };
    this.active = null;
    this.current = null;
    root.setAttribute('role', 'treegrid');
    root.setAttribute('aria-label', kind.label);
    if (kind.chosen) root.setAttribute('aria-multiselectable', 'true');
    this.head = make('div', { class: 'line head', role: 'row', 'aria-rowindex': '1' }, make('span', { class: 'pick', role: 'columnheader' }, make('span', { class: 'unseen' }, kind.chosen ? 'Select' : 'Job')), ...kind.columns.map((column) => this.heading(column)));
    this.body = make('div', { class: 'body', role: 'rowgroup' });
    this.measure = make('div', { class: 'measure' });
    root.replaceChildren(make('div', { class: 'heads', role: 'rowgroup' }, this.head), this.body, this.measure);
    root.addEventListener('scroll', () => this.paint(), { passive: true });
    root.addEventListener('keydown', (event) => this.key(event));
    root.addEventListener('focusin', ({ target }) => this.activate(target.closest('[data-line]')?.dataset.line));
    this.body.addEventListener('click', (event) => this.click(event));
    const resized = new ResizeObserver(() => this.paint());
    resized.observe(root);
    resized.observe(this.measure);
  }

  heading(column) {
    const button = make('button', { type: 'button', class: 'sort', onclick: () => this.sortBy(column) }, column.word);
    return make('span', { class: column.id, role: 'columnheader', 'data-column': column.id }, button);
  }

  /** Cycles the order by `column`: ascending, descending, default. */
  sortBy(column) {
    const { by, down } = this.sort;
    if (by !== column) this.sort = { by: column, down: false };
    else this.sort = down ? { by: null, down: false } : { by, down: true };
    for (const cell of this.head.querySelectorAll('[data-column]')) {
      const direction = cell.dataset.column === this.sort.by?.id ? (this.sort.down ? 'descending' : 'ascending') : null;
      if (direction) cell.setAttribute('aria-sort', direction);
      else cell.removeAttribute('aria-sort');
    }
    this.root.scrollTop = 0;
    this.set(this.rows);
  }

  /** Replaces the rows. */
  set(rows) {
    this.rows = rows;
    const { kind, sort } = this;
    const compare = sort.by ? (a, b) => sort.by.compare(a, b) || kind.order(a, b) : kind.first;
    const groups = Map.groupBy([...rows].sort(sort.down ? (a, b) => compare(b, a) : compare), kind.group);
    this.lines = [];
    for (const [group, members] of groups) {
      if (!sort.by) members.sort(kind.order);
      this.lines.push({ key: `group ${group}`, group, members });
      if (!this.folded.has(group)) for (const row of members) this.lines.push({ key: kind.key(row), row, group });
    }
    this.at = new Map(this.lines.map((line, at) => [line.key, at]));
    if (!this.at.has(this.active)) this.active = this.nearest();
    const known = new Set(rows.map(kind.key));
    const removed = [...this.chosen].filter((key) => !known.has(key));
    for (const key of removed) this.chosen.delete(key);
    if (removed.length > 0) this.notifySelection();
    this.root.setAttribute('aria-rowcount', this.lines.length + 1);
    this.paint();
  }

  /** The line at the position of the removed active line. */
  nearest() {
    return this.lines[Math.min(this.position ?? 0, this.lines.length - 1)]?.key ?? null;
  }

  /** Renders the visible lines in order, and always the active one. */
  paint() {
    const height = this.measure.offsetHeight;
    if (height === 0) return;
    const { scrollTop, clientHeight } = this.root;
    const from = Math.max(0, Math.floor(scrollTop / height) - OVERSCAN);
    const to = Math.min(this.lines.length, Math.ceil((scrollTop + clientHeight) / height) + OVERSCAN);
    const visible = this.lines.slice(from, to);
    const active = this.at.get(this.active);
    if (active < from) visible.unshift(this.lines[active]);
    else if (active >= to) visible.push(this.lines[active]);
    this.body.style.height = `${this.lines.length * height}px`;
    const focused = this.body.contains(document.activeElement) ? document.activeElement : null;
    const shown = new Map(visible.map((line) => [line.key, this.node(line)]));
    for (const [key, node] of this.nodes) if (!shown.has(key)) node.remove();
    this.nodes = shown;
    let next = this.body.firstElementChild;
    for (const [key, node] of shown) {
      node.style.top = `${this.at.get(key) * height}px`;
      node.setAttribute('aria-rowindex', this.at.get(key) + 2);
      if (node === next) next = next.nextElementSibling;
      else this.body.insertBefore(node, next);
    }
    // A moved or removed element has lost the focus.
    if (focused && document.activeElement !== focused) {
      const target = focused.isConnected ? focused : this.nodes.get(this.active);
      target?.focus({ preventScroll: true });
    }
  }

  node(line) {
    const node = this.nodes.get(line.key) ?? (line.row ? this.rowNode(line) : this.groupNode(line));
    const pick = node.querySelector('.pick input');
    const isActive = line.key === this.active;
    if (line.row) {
      if (pick) {
        pick.checked = this.chosen.has(line.key);
        node.setAttribute('aria-selected', String(pick.checked));
      }
      if (line.key === this.current) node.setAttribute('aria-current', 'true');
      else node.removeAttribute('aria-current');
      this.kind.columns.forEach((column, at) => column.show(node.children[at + 1], line.row));
      node.classList.toggle('old', Boolean(line.row.isStale));
    } else {
      if (pick) {
        const chosen = line.members.filter((row) => this.chosen.has(this.kind.key(row))).length;
        pick.checked = chosen === line.members.length;
        pick.indeterminate = chosen > 0 && !pick.checked;
      }
      node.setAttribute('aria-expanded', String(!this.folded.has(line.group)));
      this.kind.head(node.lastElementChild, line.members);
    }
    for (const control of [node, ...node.querySelectorAll('input, button')]) control.tabIndex = isActive ? 0 : -1;
    return node;
  }

  pick(label) {
    return make('span', { class: 'pick', role: 'gridcell' }, this.kind.chosen ? make('input', { type: 'checkbox', 'aria-label': label }) : null);
  }

  rowNode({ key, row }) {
    const cell = (column) => make('span', { class: column.id, role: column.id === 'name' ? 'rowheader' : 'gridcell' });
    return make('div', { class: 'line', role: 'row', 'aria-level': '2', 'data-line': key }, this.pick(`Select ${this.kind.name(row)}`), ...this.kind.columns.map(cell));
  }

  groupNode({ key, group }) {
    const about = make('span', { class: 'about', role: 'gridcell', 'aria-colspan': this.kind.columns.length });
    return make('div', { class: 'line group', role: 'row', 'aria-level': '1', 'data-line': key }, this.pick(`Select all of ${group}`), about);
  }

  /** The rows of the line that contains `element`. */
  rowsAt(element) {
    const line = this.lines[this.at.get(element.closest('[data-line]').dataset.line)];
    return line?.members ?? [line?.row].filter(Boolean);
  }

  /** Gives the tab stop to the line `key`. */
  activate(key) {
    if (!this.at.has(key)) return;
    this.position = this.at.get(key);
    if (key === this.active) return;
    this.active = key;
    this.paint();
  }

  /** Goes to the line at `at`, or to the nearest one. */
  go(at) {
    if (this.lines.length === 0) return;
    const position = Math.min(Math.max(at, 0), this.lines.length - 1);
    this.scrollTo(position);
    this.activate(this.lines[position].key);
    this.nodes.get(this.active)?.focus({ preventScroll: true });
  }

  /** Scrolls until the line at `position` is visible. */
  scrollTo(position) {
    const height = this.measure.offsetHeight;
    const [top, head] = [position * height, this.head.offsetHeight];
    const { scrollTop, clientHeight } = this.root;
    if (top < scrollTop) this.root.scrollTop = top;
    else if (top + height > scrollTop + clientHeight - head) this.root.scrollTop = top + height - clientHeight + head;
    this.paint();
  }

  /** Returns the focus to the row `key`, or to the active line. */
  focus(key) {
    this.go(this.at.get(key) ?? this.at.get(this.active) ?? 0);
  }

  /** Marks the row `key` as the open one. */
  mark(key) {
    this.current = key;
    const row = this.rows.find((one) => this.kind.key(one) === key);
    if (row && this.folded.delete(this.kind.group(row))) this.set(this.rows);
    if (this.at.has(key)) {
      this.active = key;
      this.scrollTo(this.at.get(key));
    } else this.paint();
  }

  fold(group, folds) {
    if (folds) this.folded.add(group);
    else this.folded.delete(group);
    this.set(this.rows);
  }

  /** Toggles the selection of the line `key`; with `to`, of all lines between the two. */
  choose(key, to) {
    if (!this.kind.chosen) return;
    const rows = (line) => line.members ?? [line.row];
    const line = this.lines[this.at.get(key)];
    const chosen = !rows(line).every((row) => this.chosen.has(this.kind.key(row)));
    const [from, end] = [this.at.get(key), this.at.get(to) ?? this.at.get(key)].sort((a, b) => a - b);
    for (const row of this.lines.slice(from, end + 1).flatMap((one) => (one.row || from === end ? rows(one) : []))) {
      if (chosen) this.chosen.add(this.kind.key(row));
      else this.chosen.delete(this.kind.key(row));
    }
    this.last = key;
    this.notifySelection();
    this.paint();
  }

  chooseNone() {
    this.chosen.clear();
    this.notifySelection();
    this.paint();
  }

  notifySelection() {
    this.kind.chosen?.(this.rows.filter((row) => this.chosen.has(this.kind.key(row))));
  }

  click(event) {
    const node = event.target.closest('[data-line]');
    const line = this.lines[this.at.get(node?.dataset.line)];
    if (!line) return;
    if (event.target.matches('.pick input')) return this.choose(line.key, event.shiftKey ? this.last : undefined);
    if (event.target.closest('button, a')) return;
    if (event.target.closest('.pick')) return this.choose(line.key, event.shiftKey ? this.last : undefined);
    if (line.row) this.kind.open(line.row);
    else this.fold(line.group, !this.folded.has(line.group));
  }

  key(event) {
    const at = this.at.get(this.active);
    const line = this.lines[at];
    const inside = event.target.closest('button, input');
    if (!line || event.metaKey || event.altKey || event.target.closest('.heads')) return;
    if (event.ctrlKey && !(event.key === 'a' && this.kind.chosen)) return;
    if (inside && ['Enter', ' '].includes(event.key)) return;
    const page = Math.max(1, Math.floor(this.root.clientHeight / this.measure.offsetHeight) - 2);
    const group = this.at.get(`group ${line.group}`);
    const keys = {
      ArrowDown: () => this.go(at + 1),
      ArrowUp: () => this.go(at - 1),
      PageDown: () => this.go(at + page),
      PageUp: () => this.go(at - page),
      Home: () => this.go(0),
      End: () => this.go(this.lines.length - 1),
      ArrowLeft: () => (line.row ? this.go(group) : this.fold(line.group, true)),
      ArrowRight: () => line.row || this.fold(line.group, false),
      Enter: () => (line.row ? this.kind.open(line.row, true) : this.fold(line.group, !this.folded.has(line.group))),
      ' ': () => this.choose(line.key, event.shiftKey ? this.last : undefined),
      Escape: () => this.chooseNone(),
    };
    const selectAll = () => {
      this.rows.forEach((row) => this.chosen.add(this.kind.key(row)));
      this.notifySelection();
      this.paint();
    };
    const action = event.ctrlKey ? selectAll : (keys[event.key] ?? this.kind.press(event.key, line.members ?? [line.row], this.lines[group].members));
    if (!action) return;
    event.preventDefault();
    action();
    if (event.shiftKey && ['ArrowDown', 'ArrowUp'].includes(event.key) && this.active !== line.key) this.choose(this.active);
  }
}
