// One task that runs: where it is, without stopping it, and a prompt on it, for which it is stopped. Or one that has failed: where its
// exception left it.

import { json } from './relay.js';
import { stacks } from './snapshot.js';
import { place, since, title } from './stop.js';
import { factsOf, whereabouts } from './task.js';
import { mayPrompt, WithTerminal } from './terminal.js';
import { make, time, write } from './text.js';

function facts(row) {
  const pairs = whereabouts(row);
  return factsOf(pairs.filter(([, text]) => text));
}

/** A look as a snapshot of a paused task has it: the innermost frame last. */
function threads(look) {
  const frame = ({ file, line, function: name, locals }) => ({ file, line, function: name, variables: locals ?? [] });
  return look.threads.map(({ name, raised, frames }) => {
    const stack = frames.map(frame).reverse();
    return { name: name || 'without a name', ...(raised ? { exception: raised, raised: stack, frames: [] } : { frames: stack }) };
  });
}

/** Shows in `task` what the look that `body` asks for has, and `when` that was; whether there is one. */
async function looked(task, body, none, when) {
  write(task.told, 'Looking …');
  try {
    const { looks } = await json('v1/looks', { method: 'POST', body, patience: 40_000 });
    const [seen] = looks;
    if (!seen?.look) return write(task.told, seen?.error ?? none);
    task.shown.replaceChildren(stacks(threads(seen.look)));
    task.told.replaceChildren(...when());
    return true;
  } catch (error) {
    write(task.told, error.message);
    return false;
  }
}

export class RunningTask extends WithTerminal {
  constructor(row, me) {
    super();
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
    if (!mayPrompt(this.me)) return;
    this.reason = make('input', { type: 'text', maxlength: '200', placeholder: 'Why, for the record', 'aria-label': 'Why it is stopped, for the record', autocomplete: 'off' });
    this.actions.append(make('button', { type: 'button', class: 'grave', onclick: () => this.stop() }, 'Stop and debug'), this.reason);
  }

  openedByPerson() {
    if (this.me.scopes.has('view') && !this.hasLooked && !this.terminal?.over) this.look();
  }

  /** Shows where its process is. It runs on. */
  async look() {
    this.hasLooked = true;
    const { cluster, worker_id: worker } = this.row;
    const when = () => ['Where it was ', time(Date.now()), ' ago. It runs on.'];
    this.hasLooked = await looked(this, { cluster, filter: [`worker=${worker}`] }, 'Nothing runs there any more.', when);
  }

  /** Has a debugger opened in it, and its prompt here. */
  stop() {
    const errand = `running ${this.row.worker_id} ${this.reason.value.trim()}`.trim();
    const isNew = this.opens(errand, title(this.row), () => write(this.told, ''));
    if (isNew) write(this.told, 'It stops at its next line of Python; inside a call, when that returns. Interrupt leaves it running.');
  }
}

export class FailedTask {
  constructor(row, me) {
    Object.assign(this, { row, me });
    this.heading = make('h2', { tabindex: '-1' }, title(row));
    const where = [place(row), row.location?.function && `in ${row.location.function}`].filter(Boolean).join(' ');
    const line = make('p', { class: 'line-of-facts' }, make('span', { class: 'pill', 'data-kind': 'failed' }, row.exception), make('span', { class: 'place' }, where), make('span', {}, 'failed ', time(since(row)), ' ago'), make('span', {}, `on ${row.node_ip ?? 'an unknown node'}`));
    this.told = make('p', { class: 'told', role: 'status' });
    this.shown = make('div', { class: 'shown' });
    const ids = make('details', { class: 'ids' }, make('summary', {}, 'Ids and facts'), factsOf([['Id', row.id]]), facts(row));
    this.element = make('article', { class: 'task' }, this.heading, line, this.told, this.shown, ids);
  }

  /** Shows where its exception left it. */
  async openedByPerson() {
    if (this.hasLooked) return;
    if (!this.me.scopes.has('view')) return write(this.told, 'Its stack takes the permission `view`.');
    this.hasLooked = true;
    this.hasLooked = await looked(this, { failed: this.row.id }, 'Nothing is kept of it any more.', () => ['It is over: this is how its exception left it.']);
  }

  isBusy() {
    return false;
  }

  close() {
    this.element.remove();
  }
}
