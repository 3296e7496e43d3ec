// What is known of one paused task, and what this user may do with it. The relay decides: the page asks which permissions
// there are, and shows no button for what is missing.

import { letRun, park } from './actions.js';
import { showAge, showLeft, showStatus } from './list.js';
import { ask, json } from './relay.js';
import { stacks } from './snapshot.js';
import { isOwn, place, title } from './stop.js';
import { WithTerminal } from './terminal.js';
import { copy, holds, make, time, write } from './text.js';

/** The ids of a paused or running task, and what it holds. */
export function whereabouts(row) {
  return [
    ['Job', row.submission_id || row.job_id],
    ['Ray job id', row.submission_id && row.job_id],
    ['Ray Train run', row.train_run],
    ['Task', row.task_id],
    ['Actor', row.actor_id],
    ['Worker', row.worker_id],
    ['Node', row.node_id],
    ['Process', row.pid && `${row.pid}`],
    ['Cluster', row.cluster],
    ['Holds', row.resources && (holds(row) || 'nothing')],
  ];
}

/** The ids and facts of a task, as words and texts. */
function facts(row) {
  const holder = row.holder;
  return [
    ['Id', row.id],
    ...whereabouts(row),
    ['Debugger', row.kind === 'pdb' ? 'pdb (legacy)' : row.kind],
    ['Held by', holder && [holder.client, holder.subject, holder.peer].filter(Boolean).join(', ')],
  ].filter(([, text]) => text);
}

/** A list of `pairs`, words and texts, each with a button that copies it. */
export function factsOf(pairs) {
  const all = pairs.flatMap(([word, text]) => {
    const value = make('code', {}, text);
    const button = make('button', { type: 'button', class: 'quiet small', 'aria-label': `Copy ${word}` }, 'Copy');
    button.addEventListener('click', async () => write(button, await copy(text, value)));
    return [make('dt', {}, word), make('dd', {}, value, ' ', button)];
  });
  return make('dl', { class: 'facts' }, ...all);
}

/** The text of `template` with values where their names stand between two `@`. */
function filled(template, values) {
  return template.replace(/@(\w+)@/g, (whole, name) => values[name] ?? whole);
}

/** The launch configuration of VS Code for `row`, as `ray-relay launch-config vscode --breakpoint ID` prints it. */
async function configuration(row) {
  const template = await (await ask('page/vscode.json')).text();
  const ports = { 'http:': '80', 'https:': '443' };
  return filled(template, {
    host: location.hostname.replace(/^\[|\]$/g, ''),
    port: location.port || ports[location.protocol],
    name: `Ray: breakpoint ${row.id}`,
    note: '// Ids change with each worker: see `ray-relay list`.',
    selection: `"breakpoint": "${row.id}"`,
  });
}

/** One task, in the element `element`. */
export class Task extends WithTerminal {
  constructor(row, me) {
    super();
    Object.assign(this, { row, me });
    this.heading = make('h2', { tabindex: '-1' });
    this.status = make('span');
    this.age = make('span', { class: 'number' });
    this.where = make('span', { class: 'place' });
    this.node = make('span');
    this.left = make('span');
    this.actions = make('div', { class: 'buttons', role: 'group', 'aria-label': 'What to do with it' });
    this.told = make('p', { class: 'told', role: 'status' });
    this.prompt = make('div', { class: 'prompt' });
    this.shown = make('div', { class: 'shown' });
    this.ids = make('details', { class: 'ids' }, make('summary', {}, 'Ids and facts'), make('div'));
    const line = make('p', { class: 'line-of-facts' }, this.status, this.where, make('span', {}, 'for ', this.age), this.node, this.left);
    this.element = make('article', { class: 'task' }, this.heading, line, this.actions, this.told, this.prompt, this.shown, this.ids);
    this.show(row);
    this.offer();
  }

  /** Shows `row` from now on. */
  show(row) {
    const was = this.row;
    this.row = row;
    write(this.heading, title(row));
    showStatus(this.status, row, this.me.subject);
    showAge(this.age, row);
    write(this.where, [place(row), row.location?.function && `in ${row.location.function}`].filter(Boolean).join(' '));
    write(this.node, `on ${row.node_ip}`);
    showLeft(this.left, row, true);
    const pairs = facts(row);
    const key = JSON.stringify(pairs);
    if (this.key !== key) this.ids.lastElementChild.replaceChildren(factsOf(pairs));
    this.key = key;
    if (was.state !== row.state) this.arrange();
    if (was.stop !== row.stop && this.hasLooked) {
      this.hasLooked = false;
      write(this.told, 'It has stopped anew since this was read.');
    }
    if (row.task_ended || row.state === 'gone') this.terminal?.taskEnded();
    else this.terminal?.taskStands();
  }

  /** It waits no more. */
  gone() {
    this.show({ ...this.row, holder: null, state: 'gone' });
  }

  /** Asks what this user may do here, and shows a button for each of it. */
  async offer() {
    try {
      const { scopes } = await json(`v1/whoami?breakpoint=${encodeURIComponent(this.row.id)}`);
      this.scopes = new Set(scopes);
      this.arrange();
      if (!this.actions.hasChildNodes()) write(this.told, 'With your permissions there is nothing to do here.');
      if (this.wantsLook) this.openedByPerson();
      else if (this.scopes.has('view') && !this.hasLooked) write(this.told, 'It is shown because it is the first; its debugger has not been asked for anything.');
    } catch (error) {
      write(this.told, error.message);
    }
  }

  arrange() {
    const { row, scopes, me } = this;
    if (!scopes) return;
    const button = (word, act, kind) => make('button', { type: 'button', class: kind, onclick: act }, word);
    const [isHeld, isGone] = [row.state === 'attached', row.state === 'gone'];
    const isFree = !isGone && !isHeld && (!row.holder || isOwn(row, me.subject) || scopes.has('admin'));
    const isModern = row.kind === 'debugpy';
    const offered = [];
    if (isFree && isModern && scopes.has('view')) offered.push(button('Source and variables', () => this.look()));
    if ((isFree || this.terminal?.over) && scopes.has('terminal')) offered.push(button('Prompt', () => this.enter()));
    if (isFree && isModern && scopes.has('view')) offered.push(button('Park …', () => park([row], me)));
    if (!isGone && isModern && (scopes.has('view') || scopes.has('debug'))) offered.push(button('Copy VS Code configuration', () => this.configure()));
    const mayRelease = ['debug', 'terminal', 'admin'].some((scope) => scopes.has(scope));
    if (isFree && mayRelease) offered.push(button('Continue', () => letRun([row], me), 'grave'));
    const focused = this.actions.contains(document.activeElement);
    this.actions.replaceChildren(...offered);
    if (focused) (this.actions.querySelector('button') ?? this.heading).focus({ preventScroll: true });
  }

  /** A person has opened it: it is looked at once it is known that they may, unless somebody else has it. */
  openedByPerson() {
    this.wantsLook = true;
    if (!this.scopes || this.hasLooked || this.terminal?.over) return;
    const { row, scopes, me } = this;
    const isFree = row.state === 'paused' || (row.state === 'parked' && isOwn(row, me.subject));
    if (isFree && row.kind === 'debugpy' && scopes.has('view')) this.look();
  }

  /** Opens a terminal here. One that is open is gone back to. */
  async enter() {
    // A look has the debugger, as a terminal will.
    await this.looking;
    this.opens(`enter ${this.row.id}`, this.row.name || this.row.id, () => this.arrange());
  }

  /** Looks, unless that is done already, or a prompt has the debugger. */
  look() {
    if (this.terminal?.over) return write(this.told, 'Leave the prompt first.');
    this.looking ??= this.snapshot().finally(() => (this.looking = null));
  }

  /** Shows the source around the stop, and the variables there. The task stays as it is. */
  async snapshot() {
    const { row } = this;
    this.hasLooked = true;
    write(this.told, 'Looking …');
    try {
      const { threads } = await json('v1/snapshot', { method: 'POST', body: { id: row.id }, patience: 60_000 });
      this.shown.replaceChildren(stacks(threads));
      this.told.replaceChildren('As it stood ', time(Date.now()), ' ago.');
    } catch (error) {
      this.hasLooked = false;
      write(this.told, error.message);
    }
  }

  async configure() {
    try {
      const text = await configuration(this.row);
      const shown = make('pre', { tabindex: '0', 'aria-label': 'launch.json' }, text);
      const straight = location.protocol === 'http:' && location.pathname === '/relay/';
      const note = straight ? null : make('p', { class: 'hint' }, 'A debugger does not come by the way of this page: run ', make('code', {}, `ray-relay connect ${new URL('..', location.href)}`), ', and put host 127.0.0.1 and port 5678 in.');
      this.hasLooked = false;
      this.shown.replaceChildren(...[note, shown].filter(Boolean));
      write(this.told, `${await copy(text, shown)} For .vscode/launch.json; then F5.`);
    } catch (error) {
      write(this.told, error.message);
    }
  }
}
