// The task that is open, beside the list or below it. One with an open prompt stays, unseen, while another is shown.

import { make } from './text.js';

/** Whether list and task stand below each other. */
const stacked = matchMedia('(max-width: 69.99rem)');

export class Pane {
  /** In `element`; `back()` leads to the list. */
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

  /** Whether it stands below the list, and not beside it. */
  get isStacked() {
    return stacked.matches;
  }

  leave() {
    this.back(this.shown);
    if (this.isStacked) this.element.parentElement.scrollIntoView({ block: 'start' });
  }

  /** Shows what is called `key`, which `made()` gives where it is not there; `focus`: and goes there. */
  show(key, made, focus) {
    this.shown = key;
    for (const [other, one] of this.open) {
      if (other !== key && !one.isBusy()) {
        one.close();
        this.open.delete(other);
      } else one.element.hidden = other !== key;
    }
    let one = this.open.get(key);
    if (!one) {
      one = made();
      this.open.set(key, one);
      this.element.append(one.element);
    }
    [this.empty.hidden, this.link.hidden] = [true, false];
    if (focus) {
      one.heading.focus({ preventScroll: true });
      if (this.isStacked) this.element.scrollIntoView({ block: 'start' });
    }
    return one;
  }

  /** What is called `key`, where it is open. */
  of(key) {
    return this.open.get(key);
  }

  /** Closes all. */
  clear() {
    for (const one of this.open.values()) one.close();
    this.open.clear();
    this.shown = null;
    [this.empty.hidden, this.link.hidden] = [false, true];
  }
}
