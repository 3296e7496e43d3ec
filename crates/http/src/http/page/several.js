// One prompt for several paused tasks, like `all` of the terminal: input goes to each of them.

import { TerminalView } from './terminal.js';
import { make } from './text.js';

/** Tasks that the relay accepts for one prompt. */
const MAX_TASKS = 256;

export class GroupPrompt extends TerminalView {
  constructor(rows) {
    super();
    this.rows = rows.slice(0, MAX_TASKS);
    this.heading = make('h2', { tabindex: '-1' }, `One prompt for ${this.rows.length} tasks`);
    const limitNote = rows.length > MAX_TASKS ? `It is for the first ${MAX_TASKS} of ${rows.length}. ` : '';
    const code = (text) => make('code', {}, text);
    const hint = make('p', { class: 'hint' }, `${limitNote}A line goes to all of them, and what they answer alike is there once. `, code('focus 3'), ' asks one alone, ', code('focus all'), ' all again.');
    this.reopen = make('button', { type: 'button', onclick: () => this.enter() }, 'Open it again');
    this.prompt = make('div', { class: 'prompt' });
    this.element = make('article', { class: 'task' }, this.heading, hint, make('div', { class: 'buttons' }, this.reopen), this.prompt);
  }

  /** Opens the prompt, or returns to the open one. */
  enter() {
    this.reopen.hidden = true;
    const command = `all ${this.rows.map((row) => row.id).join(' ')}`;
    this.openTerminal(command, `${this.rows.length} tasks`, () => (this.reopen.hidden = false));
  }
}
