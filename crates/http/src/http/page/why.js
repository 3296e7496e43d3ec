// The view of a job's verdict: what its tasks wait for, or what differs between them.

import { json } from './relay.js';
import { clusterTroubles, copy, make, time, write } from './text.js';

/** The pill of each kind of verdict. */
const KINDS = { hangs: 'failed', slow: 'paused', differs: 'paused', healthy: 'running', unknown: 'unknown' };
/** Without a hook the relay looks twice. */
const VERDICT_TIMEOUT_MS = 130_000;

export class JobVerdict {
  /** `job` is one of the names of the job; without `cluster` it may be on any. */
  constructor(job, cluster) {
    Object.assign(this, { job, cluster });
    this.heading = make('h2', { tabindex: '-1' }, `Job ${job}`);
    const again = make('button', { type: 'button', onclick: () => this.openedByUser() }, 'Inspect again');
    this.message = make('p', { class: 'told', role: 'status' });
    this.content = make('div', { class: 'shown' });
    this.element = make('article', { class: 'task' }, this.heading, make('p', { class: 'hint' }, 'The relay inspects all processes of the job. They keep running.'), make('div', { class: 'buttons' }, again), this.message, this.content);
  }

  /** Requests the verdict and shows it. */
  async openedByUser() {
    const request = Symbol('a verdict');
    this.request = request;
    write(this.message, 'Inspecting …');
    try {
      const verdict = await json('v1/why', { method: 'POST', body: { job: this.job, cluster: this.cluster }, timeout: VERDICT_TIMEOUT_MS });
      if (this.request === request) this.show(verdict);
    } catch (error) {
      if (this.request === request) write(this.message, error.message);
    }
  }

  show({ verdict, summary, evidence, next, clusters, kept }) {
    const moment = (seconds) => new Date(seconds * 1000).toLocaleString();
    const when = kept ? [`It ${kept.ended ? 'does not run now' : 'may still run: its head does not answer'}. The relay saw it hang from ${moment(kept.first)} to ${moment(kept.last)}, and kept its first verdict.`] : ['As it was ', time(Date.now()), ' ago.'];
    this.message.replaceChildren(...when, clusterTroubles(clusters));
    const pill = make('span', { class: 'pill', 'data-kind': KINDS[verdict] }, verdict);
    const list = make('ul', { class: 'parts' }, ...evidence.map((sentence) => make('li', {}, sentence)));
    const commands = next.map((command) => this.command(command));
    const more = commands.length > 0 ? [make('h3', {}, 'To see more'), ...commands] : [];
    this.content.replaceChildren(make('p', { class: 'verdict' }, pill, ' ', make('strong', {}, summary)), list, ...more);
  }

  /** A command for a terminal, with a button that copies it. */
  command(text) {
    const code = make('code', {}, text);
    const button = make('button', { type: 'button', class: 'small quiet', onclick: async () => write(this.message, await copy(text, code)) }, 'Copy');
    return make('p', {}, code, ' ', button);
  }

  isBusy() {
    return false;
  }

  close() {
    this.request = null;
    this.element.remove();
  }
}
