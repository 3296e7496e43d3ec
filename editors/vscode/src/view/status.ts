// The entry in the status bar: how many ranks are paused, and which one is elsewhere.

import * as vscode from 'vscode';

import type { Relays } from '../relay/relays.js';
import { statusOf } from './summary.js';

/** At most so often it is written anew. */
const REDRAW_INTERVAL_MS = 500;

export class StatusBar implements vscode.Disposable {
  private readonly item = vscode.window.createStatusBarItem('rayRelay.status', vscode.StatusBarAlignment.Left);
  private readonly changes: vscode.Disposable;
  private timer: NodeJS.Timeout | undefined;

  constructor(private readonly relays: Relays) {
    this.item.name = 'Ray';
    this.item.command = 'rayRelay.tasks.focus';
    this.changes = relays.onDidChange(() => {
      this.timer ??= setTimeout(() => {
        this.timer = undefined;
        this.redraw();
      }, REDRAW_INTERVAL_MS);
    });
  }

  private redraw(): void {
    const tasks = this.relays.all.map((relay) => [...(relay.feed?.rows ?? [])]);
    if (tasks.flat().length === 0) return this.item.hide();
    // $(name) is an icon there, and a task may be called so.
    this.item.text = `$(debug-pause) Ray: ${statusOf(tasks).replaceAll('$(', '$ (')}`;
    this.item.tooltip = 'Show the tasks that are paused';
    this.item.show();
  }

  dispose(): void {
    clearTimeout(this.timer);
    this.changes.dispose();
    this.item.dispose();
  }
}
