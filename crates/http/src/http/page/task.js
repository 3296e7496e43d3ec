// The view of one paused task and its actions. The relay decides: the page requests the user's permissions and shows no
// button without one.

import { resumeTasks, park } from './actions.js';
import { showAge, showTimeLeft, showStatus } from './list.js';
import { json } from './relay.js';
import { stacks } from './snapshot.js';
import { isOwn, jobName, locationText, title } from './stop.js';
import { TerminalView } from './terminal.js';
import { copy, resourceText, make, time, write } from './text.js';

/** The ids of a paused or running task, and its resources. */
export function identifiers(row) {
  return [
    ['Job', jobName(row)],
    ['Ray job id', row.submission_id && row.job_id],
    ['Ray Train run', row.train_run],
    ['Task', row.task_id],
    ['Actor', row.actor_id],
    ['Worker', row.worker_id],
    ['Node', row.node_id],
    ['Process', row.pid && `${row.pid}`],
    ['Cluster', row.cluster],
    ['Holds', row.resources && (resourceText(row) || 'nothing')],
  ];
}

/** The ids and facts of a task, as words and texts. */
function facts(row) {
  const holder = row.holder;
  return [
    ['Id', row.id],
    ...identifiers(row),
    ['Debugger', row.kind === 'pdb' ? 'pdb (legacy)' : row.kind],
    ['Held by', holder && [holder.client, holder.subject, holder.peer].filter(Boolean).join(', ')],
  ].filter(([, text]) => text);
}

/** A list of `pairs`, labels and texts, each with a copy button. */
export function factList(pairs) {
  const all = pairs.flatMap(([word, text]) => {
    const value = make('code', {}, text);
    const button = make('button', { type: 'button', class: 'quiet small', 'aria-label': `Copy ${word}` }, 'Copy');
    button.addEventListener('click', async () => write(button, await copy(text, value)));
    return [make('dt', {}, word), make('dd', {}, value, ' ', button)];
  });
  return make('dl', { class: 'facts' }, ...all);
}

/** One task, in the element `element`. */
export class Task extends TerminalView {
  constructor(row, me) {
    super();
    Object.assign(this, { row, me });
    this.heading = make('h2', { tabindex: '-1' });
    this.status = make('span');
    this.age = make('span', { class: 'number' });
    this.where = make('span', { class: 'place' });
    this.node = make('span');
    this.timeLeft = make('span');
    this.actions = make('div', { class: 'buttons', role: 'group', 'aria-label': 'What to do with it' });
    this.message = make('p', { class: 'told', role: 'status' });
    this.prompt = make('div', { class: 'prompt' });
    this.content = make('div', { class: 'shown' });
    this.ids = make('details', { class: 'ids' }, make('summary', {}, 'Ids and facts'), make('div'));
    const line = make('p', { class: 'line-of-facts' }, this.status, this.where, make('span', {}, 'for ', this.age), this.node, this.timeLeft);
    this.element = make('article', { class: 'task' }, this.heading, line, this.actions, this.message, this.prompt, this.content, this.ids);
    this.show(row);
    this.showActions();
  }

  /** Updates the view with `row`. */
  show(row) {
    const previous = this.row;
    this.row = row;
    write(this.heading, title(row));
    showStatus(this.status, row, this.me.subject);
    showAge(this.age, row);
    write(this.where, [locationText(row), row.location?.function && `in ${row.location.function}`].filter(Boolean).join(' '));
    write(this.node, `on ${row.node_ip}`);
    showTimeLeft(this.timeLeft, row, true);
    const pairs = facts(row);
    const key = JSON.stringify(pairs);
    if (this.key !== key) this.ids.lastElementChild.replaceChildren(factList(pairs));
    this.key = key;
    if (previous.state !== row.state) this.arrange();
    if (previous.stop !== row.stop && this.wasInspected) {
      this.wasInspected = false;
      write(this.message, 'It has stopped anew since this was read.');
    }
    if (row.task_ended || row.state === 'gone') this.terminal?.taskEnded();
    else this.terminal?.taskActive();
  }

  /** Shows that the task is no longer paused. */
  ended() {
    this.show({ ...this.row, holder: null, state: 'gone' });
  }

  /** Requests the user's permissions for this task, and shows the buttons. */
  async showActions() {
    try {
      const { scopes } = await json(`v1/whoami?breakpoint=${encodeURIComponent(this.row.id)}`);
      this.scopes = new Set(scopes);
      this.arrange();
      if (!this.actions.hasChildNodes()) write(this.message, 'With your permissions there is nothing to do here.');
      if (this.wantsInspection) this.openedByUser();
      else if (this.scopes.has('view') && !this.wasInspected) write(this.message, 'It is shown because it is the first; its debugger has not been asked for anything.');
    } catch (error) {
      write(this.message, error.message);
    }
  }

  arrange() {
    const { row, scopes, me } = this;
    if (!scopes) return;
    const button = (word, act, kind) => make('button', { type: 'button', class: kind, onclick: act }, word);
    const [isHeld, isGone] = [row.state === 'attached', row.state === 'gone'];
    const isFree = !isGone && !isHeld && (!row.holder || isOwn(row, me.subject) || scopes.has('admin'));
    const isModern = row.kind === 'debugpy';
    const buttons = [];
    if (isFree && isModern && scopes.has('view')) buttons.push(button('Source and variables', () => this.inspect()));
    if ((isFree || this.terminal?.onEnd) && scopes.has('terminal')) buttons.push(button('Prompt', () => this.enter()));
    if (isFree && isModern && scopes.has('view')) buttons.push(button('Park …', () => park([row], me)));
    if (!isGone && isModern && (scopes.has('view') || scopes.has('debug'))) buttons.push(make('a', { href: 'docs/editors' }, 'In an editor'));
    const mayRelease = ['debug', 'terminal', 'admin'].some((scope) => scopes.has(scope));
    if (isFree && mayRelease) buttons.push(button('Continue', () => resumeTasks([row], me), 'grave'));
    const focused = this.actions.contains(document.activeElement);
    this.actions.replaceChildren(...buttons);
    if (focused) (this.actions.querySelector('button') ?? this.heading).focus({ preventScroll: true });
  }

  /** Inspects the task that the user opened, if they may and no other user holds it. */
  openedByUser() {
    this.wantsInspection = true;
    if (!this.scopes || this.wasInspected || this.terminal?.onEnd) return;
    const { row, scopes, me } = this;
    const isFree = row.state === 'paused' || (row.state === 'parked' && isOwn(row, me.subject));
    if (isFree && row.kind === 'debugpy' && scopes.has('view')) this.inspect();
  }

  /** Opens a terminal, or returns to the open one. */
  async enter() {
    // The inspection holds the debugger, which the terminal needs.
    await this.inspecting;
    this.openTerminal(`enter ${this.row.id}`, this.row.name || this.row.id, () => this.arrange());
  }

  /** Inspects the task, unless an inspection is running or a prompt holds the debugger. */
  inspect() {
    if (this.terminal?.onEnd) return write(this.message, 'Leave the prompt first.');
    this.inspecting ??= this.snapshot().finally(() => (this.inspecting = null));
  }

  /** Shows the source and variables at the stop. The task stays paused. */
  async snapshot() {
    const { row } = this;
    this.wasInspected = true;
    write(this.message, 'Looking …');
    try {
      const { threads } = await json('v1/snapshot', { method: 'POST', body: { id: row.id }, timeout: 60_000 });
      this.content.replaceChildren(stacks(threads));
      this.message.replaceChildren('As it stood ', time(Date.now()), ' ago.');
    } catch (error) {
      this.wasInspected = false;
      write(this.message, error.message);
    }
  }
}
