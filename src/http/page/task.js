// What is known of one breakpoint, and what this user may do with it. The relay decides: the page asks which permissions
// there are, and shows no button for what is missing.

import { ask, json } from './relay.js';
import { stacks } from './snapshot.js';
import { Terminal } from './terminal.js';
import { clock, confirmed, copy, find, holds, make, write } from './text.js';

/** The facts of a breakpoint, as words and texts. */
function facts(row) {
  const time = (seconds) => (seconds ? clock(new Date(seconds * 1000)) : null);
  const holder = row.holder;
  return [
    ['Id', row.id],
    ['Cluster', row.cluster],
    ['Node', row.node_id],
    ['Worker', row.worker_id],
    ['Job', row.job_id],
    ['Task', row.task_id],
    ['Actor', row.actor_id],
    ['Holds', row.resources && (holds(row) || 'nothing')],
    ['Function', row.location?.function],
    ['Exception', row.exception],
    ['Since', time(row.first_seen)],
    ['Debugger', row.kind === 'pdb' ? 'pdb (legacy)' : row.kind],
    ['Held by', holder && [holder.client, holder.subject, holder.peer].filter(Boolean).join(', ')],
    ['Held since', holder && time(holder.since)],
  ].filter(([, text]) => text);
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

/** The details of one breakpoint, in `element`. */
export class Task {
  constructor(element, row) {
    this.element = element;
    this.row = row;
    this.facts = make('dl', { class: 'facts' });
    this.actions = make('div', { class: 'buttons' });
    this.told = make('p', { class: 'told', role: 'status' });
    this.shown = make('div');
    element.replaceChildren(this.actions, this.told, this.shown, this.facts);
    this.show(row);
    this.offer();
  }

  /** Shows `row` from now on. */
  show(row) {
    const was = this.row;
    this.row = row;
    const pairs = facts(row).flatMap(([word, text]) => [make('dt', {}, word), make('dd', {}, text)]);
    this.facts.replaceChildren(...pairs);
    if (was.state !== row.state && was !== row) this.arrange();
    if (row.task_ended || row.state === 'gone') this.terminal?.taskEnded();
    else this.terminal?.taskStands();
  }

  /** Asks what this user may do here, and shows a button for each of it. */
  async offer() {
    try {
      const { scopes } = await json(`v1/whoami?breakpoint=${encodeURIComponent(this.row.id)}`);
      this.scopes = new Set(scopes);
      this.arrange();
      if (!this.actions.hasChildNodes()) write(this.told, 'With your permissions there is nothing to do here.');
    } catch (error) {
      write(this.told, error.message);
    }
  }

  arrange() {
    const { row, scopes } = this;
    if (!scopes) return;
    const button = (word, act, kind) => make('button', { type: 'button', class: kind, onclick: act }, word);
    const [isHeld, isGone] = [row.state === 'attached', row.state === 'gone'];
    const offered = [];
    if (!isGone && (!isHeld || this.terminal) && scopes.has('terminal')) offered.push(button('Terminal', () => this.enter()));
    if (!isGone && !isHeld && row.kind === 'debugpy' && scopes.has('view')) {
      offered.push(button('Source and variables', () => this.look()));
    }
    if (!isGone && row.kind === 'debugpy' && (scopes.has('view') || scopes.has('debug'))) {
      offered.push(button('Copy VS Code configuration', () => this.configure()));
    }
    const mayRelease = ['debug', 'terminal', 'admin'].some((scope) => scopes.has(scope));
    if (!isGone && !isHeld && mayRelease) offered.push(button('Let it run on', () => this.release(), 'grave'));
    const focused = this.actions.contains(document.activeElement);
    this.actions.replaceChildren(...offered);
    if (focused) this.actions.querySelector('button')?.focus({ preventScroll: true });
  }

  /** Opens a terminal here. One that is open is gone back to. */
  enter() {
    if (!this.terminal?.over) {
      this.terminal = new Terminal(this.row.id, this.row.name || this.row.id, () => {
        this.arrange();
      });
      this.shown.replaceChildren(this.terminal.element);
    }
    this.terminal.input.focus();
  }

  /** Shows the source around the stop, and the variables there. The task stays as it is. */
  async look() {
    if (this.terminal?.over) return write(this.told, 'Leave the terminal first.');
    write(this.told, 'Looking …');
    try {
      const { threads } = await json('v1/snapshot', { method: 'POST', body: { id: this.row.id }, patience: 60_000 });
      this.terminal = null;
      this.shown.replaceChildren(stacks(threads));
      write(this.told, `As it stood at ${clock(new Date())}.`);
    } catch (error) {
      write(this.told, error.message);
    }
  }

  async configure() {
    if (this.terminal?.over) return write(this.told, 'Leave the terminal first.');
    try {
      const text = await configuration(this.row);
      const shown = make('pre', { tabindex: '0', 'aria-label': 'launch.json' }, text);
      const straight = location.protocol === 'http:' && location.pathname === '/relay/';
      const note = straight ? null : make('p', { class: 'hint' }, 'A debugger does not come by the way of this page: run ', make('code', {}, `ray-relay connect ${new URL('..', location.href)}`), ', and put host 127.0.0.1 and port 5678 in.');
      this.terminal = null;
      this.shown.replaceChildren(...[note, shown].filter(Boolean));
      write(this.told, `${await copy(text, shown)} For .vscode/launch.json; then F5.`);
    } catch (error) {
      write(this.told, error.message);
    }
  }

  async release() {
    const { id, name } = this.row;
    if (!(await confirmed(`Let ${name || id} run on, without a person attaching?`, 'Let it run on'))) return;
    write(this.told, 'Letting it run on …');
    try {
      const answer = await json('v1/release', { method: 'POST', body: { ids: [id] }, patience: 30_000 });
      const [result] = answer.results;
      const said = result.released ? `${name || id} runs on.` : result.error;
      write(this.told, said);
      write(find('news'), said);
    } catch (error) {
      write(this.told, error.message);
    }
  }

  /** Whether somebody still reads what is shown here, although the task is gone. */
  isRead() {
    return Boolean(this.terminal);
  }

  /** Calls `done` once nobody reads it any more. */
  onClosed(done) {
    this.closed = done;
  }

  /** Ends what goes on here. */
  close() {
    this.terminal?.close();
    this.element.replaceChildren();
    this.closed?.();
  }
}
