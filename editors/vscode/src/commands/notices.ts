// Notifications of what has changed and of what ends soon: one for each, with at most one button.

import * as vscode from 'vscode';

import type { Relay } from '../relay/relay.js';
import type { Relays } from '../relay/relays.js';
import { Changes } from '../view/changes.js';
import { noticesDue } from '../view/due.js';
import { showError, showNotice } from './notify.js';
import { changeToken } from './relays.js';
import { attachTasks, park } from './tasks.js';

const CHECK_INTERVAL_MS = 5_000;

/** Most announcements that are remembered; the oldest are forgotten. */
const MAX_ANNOUNCED = 1000;

/** What a button does. */
interface Action {
  label: string;
  run: () => Promise<unknown>;
}

export class Notices implements vscode.Disposable {
  private readonly announced = new Set<string>();
  private readonly changes = new WeakMap<Relay, Changes>();
  private readonly timer = setInterval(() => this.check(), CHECK_INTERVAL_MS);

  constructor(private readonly relays: Relays) {}

  private check(): void {
    for (const relay of this.relays.all) {
      const { feed, me } = relay;
      if (feed?.state.kind !== 'live' || me === undefined) continue;
      this.checkChanges(relay);
      // A token that is made anew does not end.
      const expires = relay.credential.renewAt === undefined ? (me.expires ?? undefined) : undefined;
      for (const notice of noticesDue(relay.name, feed.rows, me.subject, expires, Date.now() / 1000)) {
        if (!this.isNew(`${relay.saved.id}/${notice.key}`)) continue;
        void offer(
          notice.text,
          notice.kind === 'park'
            ? { label: 'Keep…', run: () => park(relay, notice.tasks) }
            : { label: 'Change the Token…', run: () => changeToken(this.relays, relay) },
        );
      }
    }
  }

  private checkChanges(relay: Relay): void {
    const changes = this.changes.get(relay) ?? new Changes();
    this.changes.set(relay, changes);
    const list = { breakpoints: [...(relay.feed?.rows ?? [])], clusters: [...(relay.feed?.clusters ?? [])] };
    for (const { text, tasks } of changes.since(list, relay.subject, relay.released)) {
      const label = tasks.length === 1 ? 'Attach' : 'Attach All';
      void offer(text, tasks.length === 0 ? undefined : { label, run: () => attachTasks(relay, tasks) });
    }
  }

  private isNew(key: string): boolean {
    if (this.announced.has(key)) return false;
    this.announced.add(key);
    for (const oldest of this.announced) {
      if (this.announced.size <= MAX_ANNOUNCED) break;
      this.announced.delete(oldest);
    }
    return true;
  }

  dispose(): void {
    clearInterval(this.timer);
  }
}

async function offer(text: string, action: Action | undefined): Promise<void> {
  try {
    const pressed = await showNotice(text, ...(action === undefined ? [] : [action.label]));
    if (action !== undefined && pressed === action.label) await action.run();
  } catch (error) {
    void showError(error);
  }
}
