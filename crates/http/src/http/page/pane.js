// The open task, next to the list or below it. A task with an open prompt stays, hidden, while another one is shown.

import { make } from './text.js';

/** Whether the task is below the list. */
const stacked = matchMedia('(max-width: 69.99rem)');

export class Pane {
  /** Renders into `element`; `back()` returns to the list. */
  constructor(element, back) {
    Object.assign(this, { element, back, open: new Map(), shown: null });
    this.empty = make('p', { class: 'none' }, 'Open a task to see where it stands.');
    this.link = make('button', { type: 'button', class: 'quiet back', onclick: () => this.leave() }, '↑ Back to the list');
    this.link.hidden = true;
    element.replaceChildren(this.link, this.empty);
    element.addEventListener('keydown', (event) => {
      if (event.key !== 'Escape') return;
      event.preventDefault();
      this.leave();
    });
  }

  /** Whether the pane is below the list, and not next to it. */
  get isStacked() {
    return stacked.matches;
  }

  leave() {
    this.back(this.shown);
    if (this.isStacked) this.element.parentElement.scrollIntoView({ block: 'start' });
  }

  /** Shows the view `key`, which `create()` creates if needed; `focus` moves the focus to it. */
  show(key, create, focus) {
    this.shown = key;
    for (const [other, view] of this.open) {
      if (other !== key && !view.isBusy()) {
        view.close();
        this.open.delete(other);
      } else view.element.hidden = other !== key;
    }
    let view = this.open.get(key);
    if (!view) {
      view = create();
      this.open.set(key, view);
      this.element.append(view.element);
    }
    [this.empty.hidden, this.link.hidden] = [true, false];
    if (focus) {
      view.heading.focus({ preventScroll: true });
      if (this.isStacked) this.element.scrollIntoView({ block: 'start' });
    }
    return view;
  }

  /** The open view `key`, if there is one. */
  get(key) {
    return this.open.get(key);
  }

  /** Closes all. */
  clear() {
    for (const view of this.open.values()) view.close();
    this.open.clear();
    this.shown = null;
    [this.empty.hidden, this.link.hidden] = [false, true];
  }
}
