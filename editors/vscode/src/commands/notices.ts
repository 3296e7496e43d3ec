// Notifications of what has changed and of what ends soon: one for each, with at most one button.

import * as vscode from 'vscode';

import { forgetOldest } from '../bounded.js';
import type { Breakpoint } from '../relay/breakpoint.js';
import type { Feed } from '../relay/feed.js';
import type { Relay } from '../relay/relay.js';
import type { Relays } from '../relay/relays.js';
import { Changes } from '../view/changes.js';
import { noticesDue } from '../view/due.js';
import { showError, showNotice } from '../notify.js';
import { changeToken } from './relays.js';
import { attachTasks, park } from './tasks.js';

const CHECK_INTERVAL_MS = 5_000;

/** Most announcements that are remembered; the oldest are forgotten. */
const MAX_ANNOUNCED = 50_000;

/** What a button does. */
interface Action {
  label: string;
  run: () => Promise<unknown>;
}

export class Notices implements vscode.Disposable {
  private readonly announced = new Set<string>();
  private readonly changes = new WeakMap<Feed, Changes>();
  private readonly timer = setInterval(() => this.check(), CHECK_INTERVAL_MS);

  constructor(private readonly relays: Relays) {}

  private check(): void {
    for (const relay of this.relays.all) {
      const { feed, me } = relay;
      if (feed?.state.kind !== 'live' || me === undefined) continue;
      this.checkChanges(relay, feed);
      // A token that is made anew does not end.
      const expires = relay.credential.renewAt === undefined ? (me.expires ?? undefined) : undefined;
      const keyOf = (key: string) => `${relay.saved.id}/${key}`;
      const isKnown = (key: string) => this.announced.has(keyOf(key));
      for (const notice of noticesDue(relay.name, feed.rows, me.subject, expires, Date.now() / 1000, isKnown)) {
        for (const key of notice.keys) this.announced.add(keyOf(key));
        forgetOldest(this.announced, MAX_ANNOUNCED);
        void offer(
          notice.text,
          notice.kind === 'park'
            ? { label: 'Park…', run: () => park(relay, listed(relay, notice.tasks)) }
            : { label: 'Change the Token…', run: () => changeToken(this.relays, relay) },
        );
      }
    }
  }

  private checkChanges(relay: Relay, feed: Feed): void {
    const changes = this.changes.get(feed) ?? new Changes();
    this.changes.set(feed, changes);
    const list = { breakpoints: [...feed.rows], clusters: [...feed.clusters] };
    for (const { text, tasks } of changes.since(list, relay.subject, relay.released)) {
      const label = tasks.length === 1 ? 'Attach' : 'Attach All';
      const run = () => attachTasks(relay, listed(relay, tasks));
      void offer(text, tasks.length === 0 ? undefined : { label, run });
    }
  }

  dispose(): void {
    clearInterval(this.timer);
  }
}

/** Those of `tasks` that are still paused, as the list has them now: a notice may be hours old. */
function listed(relay: Relay, tasks: Breakpoint[]): Breakpoint[] {
  const ids = new Set(tasks.map((task) => task.id));
  const now = [...(relay.feed?.rows ?? [])].filter((task) => ids.has(task.id));
  if (now.length === 0) throw new Error('Not paused any more.');
  return now;
}

async function offer(text: string, action: Action | undefined): Promise<void> {
  try {
    const pressed = await showNotice(text, ...(action === undefined ? [] : [action.label]));
    if (action !== undefined && pressed === action.label) await action.run();
  } catch (error) {
    void showError(error);
  }
}
