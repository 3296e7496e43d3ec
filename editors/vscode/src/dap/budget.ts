// How many debug sessions relays may have VS Code open. Pure.

/** Most sessions at a time. */
const MAX_SESSIONS = 256;

/** Most that are opened within {@link WINDOW_MS}. */
const MAX_NEW_SESSIONS = 100;
const WINDOW_MS = 10_000;

/** Counts the sessions of all relays: each session can ask for further ones. */
export class SessionBudget {
  /** When the last ones were requested. */
  private readonly recent: number[] = [];

  /** Whether another may be opened in addition to `live` sessions; it counts then. */
  mayOpen(live: number, now: number = Date.now()): boolean {
    while (this.recent[0] !== undefined && now - this.recent[0] > WINDOW_MS) this.recent.shift();
    if (live >= MAX_SESSIONS || this.recent.length >= MAX_NEW_SESSIONS) return false;
    this.recent.push(now);
    return true;
  }
}
