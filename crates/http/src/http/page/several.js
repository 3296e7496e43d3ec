// One prompt for several paused tasks, as `nc` has it behind `all`: what is typed goes to each of them.

import { WithTerminal } from './terminal.js';
import { make } from './text.js';

/** Tasks that the relay takes for one prompt. */
const MOST = 256;

export class GroupPrompt extends WithTerminal {
  constructor(rows) {
    super();
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
    this.again.hidden = true;
    const errand = `all ${this.rows.map((row) => row.id).join(' ')}`;
    this.opens(errand, `${this.rows.length} tasks`, () => (this.again.hidden = false));
  }
}
