// The view of a running task, with its stack and a prompt, which stops the task; and of a failed task, with the stack of its
// exception.

import { json } from './relay.js';
import { stacks } from './snapshot.js';
import { locationText, startTime, title } from './stop.js';
import { factList, identifiers } from './task.js';
import { mayPrompt, TerminalView } from './terminal.js';
import { make, time, write } from './text.js';

function facts(row) {
  const pairs = identifiers(row);
  return factList(pairs.filter(([, text]) => text));
}

/** Converts an inspection to the form of a snapshot: the innermost frame last. */
function threads(look) {
  const frame = ({ file, line, function: name, locals }) => ({ file, line, function: name, variables: locals ?? [] });
  return look.threads.map(({ name, raised, frames }) => {
    const stack = frames.map(frame).reverse();
    return { name: name || 'without a name', ...(raised ? { exception: raised, raised: stack, frames: [] } : { frames: stack }) };
  });
}

/** Requests the inspection `body` and shows it in `task`, with the time by `when`. Returns whether there is one. */
async function showInspection(task, body, none, when) {
  write(task.message, 'Looking …');
  try {
    const { looks } = await json('v1/looks', { method: 'POST', body, timeout: 40_000 });
    const [inspection] = looks;
    if (!inspection?.look) return write(task.message, inspection?.error ?? none);
    task.content.replaceChildren(stacks(threads(inspection.look)));
    task.message.replaceChildren(...when());
    return true;
  } catch (error) {
    write(task.message, error.message);
    return false;
  }
}

export class RunningTask extends TerminalView {
  constructor(row, me) {
    super();
    Object.assign(this, { row, me });
    this.heading = make('h2', { tabindex: '-1' }, title(row));
    const line = make('p', { class: 'line-of-facts' }, make('span', {}, 'runs for ', time(startTime(row))), make('span', {}, `on ${row.node_ip ?? 'an unknown node'}`));
    this.actions = make('div', { class: 'buttons', role: 'group', 'aria-label': 'What to do with it' });
    this.message = make('p', { class: 'told', role: 'status' });
    this.prompt = make('div', { class: 'prompt' });
    this.content = make('div', { class: 'shown' });
    const ids = make('details', { class: 'ids' }, make('summary', {}, 'Ids and facts'), facts(row));
    this.element = make('article', { class: 'task' }, this.heading, line, this.actions, this.message, this.prompt, this.content, ids);
    this.showActions();
  }

  /** Shows buttons by the user's general permissions. The relay decides for this task. */
  showActions() {
    const { scopes } = this.me;
    if (scopes.has('view')) this.actions.append(make('button', { type: 'button', onclick: () => this.look() }, 'Where is it'));
    if (!mayPrompt(this.me)) return;
    this.reason = make('input', { type: 'text', maxlength: '200', placeholder: 'Why, for the record', 'aria-label': 'Why it is stopped, for the record', autocomplete: 'off' });
    this.actions.append(make('button', { type: 'button', class: 'grave', onclick: () => this.stop() }, 'Stop and debug'), this.reason);
  }

  openedByUser() {
    if (this.me.scopes.has('view') && !this.wasInspected && !this.terminal?.onEnd) this.look();
  }

  /** Shows the stack of the running process. */
  async look() {
    this.wasInspected = true;
    const { cluster, worker_id: worker } = this.row;
    const when = () => ['Where it was ', time(Date.now()), ' ago. It runs on.'];
    this.wasInspected = await showInspection(this, { cluster, filter: [`worker=${worker}`] }, 'Nothing runs there any more.', when);
  }

  /** Opens a debugger in the task, and its prompt. */
  stop() {
    const command = `running ${this.row.worker_id} ${this.reason.value.trim()}`.trim();
    const isNew = this.openTerminal(command, title(this.row), () => write(this.message, ''));
    if (isNew) write(this.message, 'It stops at its next line of Python; inside a call, when that returns. Interrupt leaves it running.');
  }
}

export class FailedTask {
  constructor(row, me) {
    Object.assign(this, { row, me });
    this.heading = make('h2', { tabindex: '-1' }, title(row));
    const where = [locationText(row), row.location?.function && `in ${row.location.function}`].filter(Boolean).join(' ');
    const line = make('p', { class: 'line-of-facts' }, make('span', { class: 'pill', 'data-kind': 'failed' }, row.exception), make('span', { class: 'place' }, where), make('span', {}, 'failed ', time(startTime(row)), ' ago'), make('span', {}, `on ${row.node_ip ?? 'an unknown node'}`));
    this.message = make('p', { class: 'told', role: 'status' });
    this.content = make('div', { class: 'shown' });
    const ids = make('details', { class: 'ids' }, make('summary', {}, 'Ids and facts'), factList([['Id', row.id]]), facts(row));
    this.element = make('article', { class: 'task' }, this.heading, line, this.message, this.content, ids);
  }

  /** Shows the stack of its exception. */
  async openedByUser() {
    if (this.wasInspected) return;
    if (!this.me.scopes.has('view')) return write(this.message, 'Its stack takes the permission `view`.');
    this.wasInspected = true;
    this.wasInspected = await showInspection(this, { failed: this.row.id }, 'Nothing is kept of it any more.', () => ['It is over: this is how its exception left it.']);
  }

  isBusy() {
    return false;
  }

  close() {
    this.element.remove();
  }
}
