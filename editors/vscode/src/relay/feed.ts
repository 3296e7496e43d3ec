// The list of one relay, kept up to date by its event stream.

import * as v from 'valibot';

import { Breakpoint, List, MAX_ROWS, type Cluster } from './breakpoint.js';
import { RelayError, type Endpoint } from './endpoint.js';
import { oneLine } from '../text.js';
import { EventParser } from './events.js';

/** The stream is lost after this time without a byte: the relay sends a keepalive every 15 s. */
const SILENCE_MS = 40_000;

const MIN_RETRY_DELAY_MS = 1_000;
const MAX_RETRY_DELAY_MS = 15_000;

/** How often the state of the heads is requested: the stream has it at its start alone. */
const HEADS_INTERVAL_MS = 15_000;

/** Largest answer about the heads. */
const MAX_HEADS_BYTES = 4 * 1024 * 1024;

/** How often the list is read where the relay has no room for another stream. */
const POLL_INTERVAL_MS = 5_000;

/** Events after which a task is no longer paused. */
const FINAL_EVENTS = new Set(['released', 'died', 'finished']);

/** What is known about a relay. `refused`: it answers, and wants another credential. */
export type FeedState =
  | { kind: 'connecting' }
  | { kind: 'live' }
  | { kind: 'away'; why: string; since: number }
  | { kind: 'refused'; why: string };

const Ended = v.object({ reason: v.string(), error: v.string() });

export class Feed {
  state: FeedState = { kind: 'connecting' };
  clusters: readonly Cluster[] = [];
  private readonly byId = new Map<string, Breakpoint>();
  private readonly abort = new AbortController();

  /** `onChange` is called after each change of the state or the list. */
  constructor(
    private readonly endpoint: Endpoint,
    private readonly onChange: () => void,
  ) {
    void this.run();
    void this.followHeads();
  }

  get rows(): Iterable<Breakpoint> {
    return this.byId.values();
  }

  /** Ends the stream. */
  dispose(): void {
    this.abort.abort();
  }

  private enter(state: FeedState): void {
    if (this.abort.signal.aborted) return;
    this.state = state;
    this.onChange();
  }

  private async run(): Promise<void> {
    let pause = MIN_RETRY_DELAY_MS;
    while (!this.abort.signal.aborted) {
      const began = Date.now();
      let why = 'The stream of events has ended.';
      try {
        await this.follow();
      } catch (error) {
        if (isRefusal(error)) return this.enter({ kind: 'refused', why: error.message });
        if (error instanceof RelayError && [429, 503].includes(error.status) && (await this.poll())) continue;
        why = error instanceof RelayError ? error.message : 'The connection to the relay is lost.';
      }
      if (this.abort.signal.aborted) return;
      const since = this.state.kind === 'away' ? this.state.since : Date.now();
      this.enter({ kind: 'away', why, since });
      if (Date.now() - began > MAX_RETRY_DELAY_MS) pause = MIN_RETRY_DELAY_MS;
      await this.sleep(pause);
      pause = Math.min(pause * 2, MAX_RETRY_DELAY_MS);
    }
  }

  private async follow(): Promise<void> {
    const response = await this.endpoint.open('/relay/v1/events', { signal: this.abort.signal });
    response.setEncoding('utf8');
    const silent = () => response.destroy(new Error('silent'));
    let timer = setTimeout(silent, SILENCE_MS);
    const parser = new EventParser();
    try {
      for await (const text of response as AsyncIterable<string>) {
        clearTimeout(timer);
        timer = setTimeout(silent, SILENCE_MS);
        for (const event of parser.feed(text)) this.apply(event.name, JSON.parse(event.data));
      }
    } finally {
      clearTimeout(timer);
      response.destroy();
    }
  }

  private apply(name: string, data: unknown): void {
    if (name === 'ended') {
      const { reason, error } = v.parse(Ended, data);
      // One that has expired may be replaced: the next request says so.
      throw new RelayError(reason === 'expired' ? 0 : 401, oneLine(error, 300));
    }
    if (name === 'snapshot') return this.replace(v.parse(List, data));
    // A row that cannot be read must not hide the others.
    const parsed = v.safeParse(Breakpoint, data);
    if (!parsed.success) return;
    const row = parsed.output;
    if (FINAL_EVENTS.has(name)) this.byId.delete(row.id);
    else if (this.byId.size < MAX_ROWS || this.byId.has(row.id)) this.byId.set(row.id, row);
    this.onChange();
  }

  private replace(list: List): void {
    this.byId.clear();
    for (const row of list.breakpoints) this.byId.set(row.id, row);
    this.clusters = list.clusters;
    this.enter({ kind: 'live' });
  }

  /** Reads the list once, and waits; whether the relay has answered. */
  private async poll(): Promise<boolean> {
    try {
      this.replace(await this.endpoint.json(List, '/relay/v1/breakpoints'));
    } catch {
      return false;
    }
    await this.sleep(POLL_INTERVAL_MS);
    return true;
  }

  private async followHeads(): Promise<void> {
    while (!this.abort.signal.aborted) {
      await this.sleep(HEADS_INTERVAL_MS);
      if (this.state.kind !== 'live' || this.abort.signal.aborted) continue;
      try {
        const { clusters } = await this.endpoint.json(List, '/relay/v1/breakpoints?limit=1', {
          maxBytes: MAX_HEADS_BYTES,
        });
        if (JSON.stringify(clusters) === JSON.stringify(this.clusters)) continue;
        this.clusters = clusters;
        this.onChange();
      } catch {
        // The stream reports that the relay is away.
      }
    }
  }

  private sleep(milliseconds: number): Promise<void> {
    const { signal } = this.abort;
    return new Promise((resolve) => {
      const finish = () => {
        clearTimeout(timer);
        signal.removeEventListener('abort', finish);
        resolve();
      };
      const timer = setTimeout(finish, milliseconds);
      signal.addEventListener('abort', finish);
    });
  }
}

function isRefusal(error: unknown): error is RelayError {
  return error instanceof RelayError && [401, 403].includes(error.status);
}
