// One task that runs: where it is, without stopping it, and a prompt on it, for which it is stopped.

import { json } from './relay.js';
import { stacks } from './snapshot.js';
import { since, title } from './stop.js';
import { factsOf, whereabouts } from './task.js';
import { Terminal } from './terminal.js';
import { make, time, write } from './text.js';

function facts(row) {
  const pairs = whereabouts(row, row.submission_id ?? row.job_id);
  return factsOf(pairs.filter(([, text]) => text));
}

/** A look as a snapshot of a paused task has it: the innermost frame last. */
function threads(look) {
  const frame = ({ file, line, function: name, locals }) => ({ file, line, function: name, variables: locals ?? [] });
  return look.threads.map((thread) => ({ name: thread.name || 'without a name', frames: thread.frames.map(frame).reverse() }));
}

export class RunningTask {
  constructor(row, me) {
    Object.assign(this, { row, me });
    this.heading = make('h2', { tabindex: '-1' }, title(row));
    const line = make('p', { class: 'line-of-facts' }, make('span', {}, 'runs for ', time(since(row))), make('span', {}, `on ${row.node_ip ?? 'an unknown node'}`));
    this.actions = make('div', { class: 'buttons', role: 'group', 'aria-label': 'What to do with it' });
    this.told = make('p', { class: 'told', role: 'status' });
    this.prompt = make('div', { class: 'prompt' });
    this.shown = make('div', { class: 'shown' });
    const ids = make('details', { class: 'ids' }, make('summary', {}, 'Ids and facts'), facts(row));
    this.element = make('article', { class: 'task' }, this.heading, line, this.actions, this.told, this.prompt, this.shown, ids);
    this.offer();
  }

  /** The buttons of what this user may do somewhere. Here it is the relay that says. */
  offer() {
    const { scopes } = this.me;
    if (scopes.has('view')) this.actions.append(make('button', { type: 'button', onclick: () => this.look() }, 'Where is it'));
    if (!scopes.has('debug') || !scopes.has('terminal')) return;
    this.reason = make('input', { type: 'text', maxlength: '200', placeholder: 'Why, for the record', 'aria-label': 'Why it is stopped, for the record', autocomplete: 'off' });
    this.actions.append(make('button', { type: 'button', class: 'grave', onclick: () => this.stop() }, 'Stop and debug'), this.reason);
  }

  openedByPerson() {
    if (this.me.scopes.has('view') && !this.hasLooked && !this.terminal?.over) this.look();
  }

  /** Shows where its process is. It runs on. */
  async look() {
    this.hasLooked = true;
    write(this.told, 'Looking …');
    try {
      const { cluster, worker_id: worker } = this.row;
      const { looks } = await json('v1/looks', { method: 'POST', body: { cluster, filter: [`worker=${worker}`] }, patience: 40_000 });
      const [seen] = looks;
      if (!seen) return write(this.told, 'Nothing runs there any more.');
      if (!seen.look) return write(this.told, seen.error);
      this.shown.replaceChildren(stacks(threads(seen.look)));
      this.told.replaceChildren('Where it was ', time(Date.now()), ' ago. It runs on.');
    } catch (error) {
      this.hasLooked = false;
      write(this.told, error.message);
    }
  }

  /** Has a debugger opened in it, and its prompt here. */
  stop() {
    if (!this.terminal?.over) {
      const errand = `running ${this.row.worker_id} ${this.reason.value.trim()}`.trim();
      this.terminal = new Terminal(errand, title(this.row), () => write(this.told, ''));
      write(this.told, 'It stops at its next line of Python; inside a call, when that returns. Interrupt leaves it running.');
      this.prompt.replaceChildren(this.terminal.element);
    }
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
