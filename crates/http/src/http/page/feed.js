// The live list: the relay's event stream, read with fetch, which can send a token. If no further stream is available, the
// list is polled.

import { request, json, RelayError } from './relay.js';

/** The stream is lost after this time without a byte: the relay sends a keepalive every 15 s. */
const SILENCE_TIMEOUT_MS = 40_000;
const MAX_RETRY_DELAY_MS = 15_000;
/** How often the list is polled without a stream, and how often the state of the heads. */
const POLL_INTERVAL_MS = 5_000;
/** Events after which a task is no longer paused. */
const FINAL_EVENTS = new Set(['released', 'died', 'finished']);

/** Yields the events of a byte stream as `{ name, data }`. */
async function* events(body, alive) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    alive();
    buffer += value;
    let end;
    while ((end = buffer.indexOf('\n\n')) >= 0) {
      const lines = buffer.slice(0, end).split('\n');
      buffer = buffer.slice(end + 2);
      const field = (key) => lines.find((line) => line.startsWith(key))?.slice(key.length);
      const data = field('data: ');
      if (data) yield { name: field('event: '), data: JSON.parse(data) };
    }
  }
}

/** Waits for `milliseconds`, or until the network is back. */
function pause(milliseconds) {
  return new Promise((resolve) => {
    const finish = () => {
      clearTimeout(timer);
      removeEventListener('online', finish);
      resolve();
    };
    const timer = setTimeout(finish, milliseconds);
    addEventListener('online', finish);
  });
}

/**
 * Follows the list until the relay requires authentication. `handlers` has `all(rows)`, `changed(row)`, `ended(row, name)`,
 * `live()`, `polled()`, `lost(sentence)`, `heads(list)` and `unauthenticated(sentence)`.
 */
export function follow(handlers) {
  const end = new AbortController();
  const unauthenticated = (sentence) => {
    if (end.signal.aborted) return;
    end.abort();
    handlers.unauthenticated(sentence);
  };
  const isUnauthenticated = (error) => error instanceof RelayError && [401, 403].includes(error.status);

  async function stream() {
    const streamAbort = new AbortController();
    const stop = () => streamAbort.abort();
    end.signal.addEventListener('abort', stop);
    let timer;
    const alive = () => {
      clearTimeout(timer);
      timer = setTimeout(stop, SILENCE_TIMEOUT_MS);
    };
    try {
      alive();
      const response = await request('v1/events', { signal: streamAbort.signal });
      for await (const { name, data } of events(response.body, alive)) {
        if (name === 'ended') return unauthenticated(data.error);
        if (name === 'snapshot') {
          handlers.all(data.breakpoints);
          handlers.heads(data);
          handlers.live();
        } else if (FINAL_EVENTS.has(name)) handlers.ended(data, name);
        else handlers.changed(data);
      }
    } finally {
      clearTimeout(timer);
      end.signal.removeEventListener('abort', stop);
    }
  }

  async function list() {
    let wait = 1_000;
    while (!end.signal.aborted) {
      const started = Date.now();
      let sentence = 'the stream of events has ended';
      try {
        await stream();
      } catch (error) {
        if (isUnauthenticated(error)) return unauthenticated(error.message);
        if ([429, 503].includes(error.status)) {
          try {
            const answer = await json('v1/breakpoints');
            handlers.all(answer.breakpoints);
            handlers.polled();
            await pause(POLL_INTERVAL_MS);
            continue;
          } catch (cause) {
            error = cause;
          }
        }
        sentence = error instanceof RelayError ? error.message : 'the connection to the relay is lost';
      }
      if (end.signal.aborted) return;
      handlers.lost(sentence);
      if (Date.now() - started > MAX_RETRY_DELAY_MS) wait = 1_000;
      await pause(wait);
      wait = Math.min(wait * 2, MAX_RETRY_DELAY_MS);
    }
  }

  async function heads() {
    while (!end.signal.aborted) {
      await pause(POLL_INTERVAL_MS);
      if (document.hidden) continue;
      try {
        handlers.heads(await json('v1/breakpoints?limit=1'));
      } catch (error) {
        if (isUnauthenticated(error)) return unauthenticated(error.message);
        // The stream reports that the relay is away.
      }
    }
  }

  list();
  heads();
  return () => end.abort();
}
