// The live list: the relay's event stream, read with fetch, which can send a token; where there is no room for one more
// stream, the list itself every few seconds.

import { ask, json, Refused } from './relay.js';

/** Without a byte for so long the stream is lost: the relay says every 15 s that it is alive. */
const SILENCE = 40_000;
/** How long to wait before the next attempt, at most. */
const PATIENCE = 15_000;
/** How often the list is asked for where it does not come by itself, and how the heads are. */
const EVERY = 5_000;
/** Events after which a task waits no more. */
const OVER = new Set(['released', 'died', 'finished']);

/** The events of a stream of bytes, as `{ name, data }`. */
async function* events(body, alive) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    alive();
    rest += value;
    let end;
    while ((end = rest.indexOf('\n\n')) >= 0) {
      const lines = rest.slice(0, end).split('\n');
      rest = rest.slice(end + 2);
      const of = (key) => lines.find((line) => line.startsWith(key))?.slice(key.length);
      const data = of('data: ');
      if (data) yield { name: of('event: '), data: JSON.parse(data) };
    }
  }
}

/** Waits for so long, or until the network is back. */
function pause(milliseconds) {
  return new Promise((resolve) => {
    const over = () => {
      clearTimeout(timer);
      removeEventListener('online', over);
      resolve();
    };
    const timer = setTimeout(over, milliseconds);
    addEventListener('online', over);
  });
}

/**
 * Follows the list until the relay wants to know who this is. `told` has: `all(rows)`, `one(row)`, `over(row, name)`,
 * `live()`, `polled()`, `lost(sentence)`, `heads(list)`, `stranger(sentence)`.
 */
export function follow(told) {
  const end = new AbortController();
  const stranger = (sentence) => {
    if (end.signal.aborted) return;
    end.abort();
    told.stranger(sentence);
  };
  const isStranger = (error) => error instanceof Refused && [401, 403].includes(error.status);

  async function stream() {
    const cut = new AbortController();
    const stop = () => cut.abort();
    end.signal.addEventListener('abort', stop);
    let timer;
    const alive = () => {
      clearTimeout(timer);
      timer = setTimeout(stop, SILENCE);
    };
    try {
      alive();
      const response = await ask('v1/events', { signal: cut.signal });
      for await (const { name, data } of events(response.body, alive)) {
        if (name === 'ended') return stranger(data.error);
        if (name === 'snapshot') {
          told.all(data.breakpoints);
          told.heads(data);
          told.live();
        } else if (OVER.has(name)) told.over(data, name);
        else told.one(data);
      }
    } finally {
      clearTimeout(timer);
      end.signal.removeEventListener('abort', stop);
    }
  }

  async function list() {
    let wait = 1_000;
    while (!end.signal.aborted) {
      const began = Date.now();
      let sentence = 'the stream of events has ended';
      try {
        await stream();
      } catch (error) {
        if (isStranger(error)) return stranger(error.message);
        if ([429, 503].includes(error.status)) {
          try {
            const answer = await json('v1/breakpoints');
            told.all(answer.breakpoints);
            told.polled();
            await pause(EVERY);
            continue;
          } catch (why) {
            error = why;
          }
        }
        sentence = error instanceof Refused ? error.message : 'the connection to the relay is lost';
      }
      if (end.signal.aborted) return;
      told.lost(sentence);
      if (Date.now() - began > PATIENCE) wait = 1_000;
      await pause(wait);
      wait = Math.min(wait * 2, PATIENCE);
    }
  }

  async function heads() {
    while (!end.signal.aborted) {
      await pause(EVERY);
      if (document.hidden) continue;
      try {
        told.heads(await json('v1/breakpoints?limit=1'));
      } catch (error) {
        if (isStranger(error)) return stranger(error.message);
        // That the relay is away is told by the stream.
      }
    }
  }

  list();
  heads();
  return () => end.abort();
}
