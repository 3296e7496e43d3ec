// Notifications of what ends soon: one for each, with one button.

import * as vscode from 'vscode';

import type { Relay } from '../relay/relay.js';
import type { Relays } from '../relay/relays.js';
import { noticesDue, type Notice } from '../view/due.js';
import { changeToken } from './relays.js';
import { showError, showNotice } from './notify.js';
import { park } from './tasks.js';

const CHECK_INTERVAL_MS = 20_000;

/** Most announcements that are remembered; the oldest are forgotten. */
const MAX_ANNOUNCED = 1000;

export class Notices implements vscode.Disposable {
  private readonly announced = new Set<string>();
  private readonly timer = setInterval(() => this.check(), CHECK_INTERVAL_MS);

  constructor(private readonly relays: Relays) {}

  private check(): void {
    for (const relay of this.relays.all) {
      const { feed, me } = relay;
      if (feed?.state.kind !== 'live' || me === undefined) continue;
      // A token that is made anew does not end.
      const expires = relay.credential.renewAt === undefined ? (me.expires ?? undefined) : undefined;
      for (const notice of noticesDue(relay.name, feed.rows, me.subject, expires, Date.now() / 1000)) {
        this.announce(relay, notice);
      }
    }
  }

  private announce(relay: Relay, notice: Notice): void {
    const key = `${relay.saved.id}/${notice.key}`;
    if (this.announced.has(key)) return;
    this.announced.add(key);
    for (const oldest of this.announced) {
      if (this.announced.size <= MAX_ANNOUNCED) break;
      this.announced.delete(oldest);
    }
    const button = notice.kind === 'park' ? 'Keep…' : 'Change the Token…';
    void this.offer(relay, notice, button);
  }

  private async offer(relay: Relay, notice: Notice, button: string): Promise<void> {
    if ((await showNotice(notice.text, button)) !== button) return;
    try {
      await (notice.kind === 'park' ? park(relay, notice.tasks) : changeToken(this.relays, relay));
    } catch (error) {
      void showError(error);
    }
  }

  dispose(): void {
    clearInterval(this.timer);
  }
}
