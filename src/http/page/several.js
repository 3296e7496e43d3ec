// One prompt for several paused tasks, as `nc` has it behind `all`: what is typed goes to each of them.

import { Terminal } from './terminal.js';
import { make } from './text.js';

/** Tasks that the relay takes for one prompt. */
const MOST = 256;

export class GroupPrompt {
  constructor(rows) {
    this.rows = rows.slice(0, MOST);
    this.heading = make('h2', { tabindex: '-1' }, `One prompt for ${this.rows.length} tasks`);
    const cut = rows.length > MOST ? `It is for the first ${MOST} of ${rows.length}. ` : '';
    const code = (text) => make('code', {}, text);
    const hint = make('p', { class: 'hint' }, `${cut}A line goes to all of them, and what they answer alike is there once. `, code('focus 3'), ' asks one alone, ', code('focus all'), ' all again.');
    this.again = make('button', { type: 'button', onclick: () => this.enter() }, 'Open it again');
    this.prompt = make('div', { class: 'prompt' });
    this.element = make('article', { class: 'task' }, this.heading, hint, make('div', { class: 'buttons' }, this.again), this.prompt);
  }

  /** Opens it. One that is open is gone back to. */
  enter() {
    if (!this.terminal?.over) {
      const errand = `all ${this.rows.map((row) => row.id).join(' ')}`;
      this.terminal = new Terminal(errand, `${this.rows.length} tasks`, () => (this.again.hidden = false));
      this.prompt.replaceChildren(this.terminal.element);
    }
    this.again.hidden = true;
    this.terminal.input.focus();
  }

  isBusy() {
    return Boolean(this.terminal?.over);
  }

  close() {
    this.terminal?.close();
    this.element.remove();
  }
}
