// Files that this machine does not have are asked of the worker, and nothing waits for that for long.

import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { MissingSources } from '../src/dap/sources.js';

type Json = Record<string, unknown>;

const request = (seq: number): Json => ({ type: 'request', command: 'stackTrace', seq, arguments: { threadId: 7 } });
const answer = (seq: number, ...sources: object[]): Json => ({
  type: 'response',
  command: 'stackTrace',
  request_seq: seq,
  success: true,
  body: { stackFrames: sources.map((source) => ({ id: 1, source })) },
});
const reply = (seq: number, success: boolean): Json => ({
  type: 'response',
  command: 'evaluate',
  request_seq: seq,
  success,
});
const FIRST_SEQ = 0x4000_0000;

let toRelay: Json[];
let toEditor: Json[];
let sources: MissingSources;

beforeEach(() => {
  vi.useFakeTimers();
  [toRelay, toEditor] = [[], []];
  const ends = {
    toRelay: (one: object) => toRelay.push(one as Json),
    toEditor: (one: object) => toEditor.push(one as Json),
  };
  sources = new MissingSources(ends, (path) => {
    return path === '/on/a/lost/network.py' ? new Promise(() => {}) : Promise.resolve(path.startsWith('/gone/'));
  });
});

afterEach(() => {
  vi.useRealTimers();
});

/** Has VS Code ask for a stack, and the relay answer it. */
async function stack(...named: object[]): Promise<boolean> {
  sources.request(request(3));
  const taken = sources.takes(answer(3, ...named));
  await vi.advanceTimersByTimeAsync(0);
  return taken;
}

describe('a stack', () => {
  it('passes if nothing in it is looked for on the disk', async () => {
    expect(await stack({ path: '/gone/a.py', sourceReference: 4 }, { path: 'a.py' }, { name: 'x' })).toBe(false);
    expect(toRelay).toEqual([]);
  });

  it('passes if all of its files are there', async () => {
    expect(await stack({ path: '/here/a.py' })).toBe(true);
    expect(toEditor).toEqual([answer(3, { path: '/here/a.py' })]);
    expect(toRelay).toEqual([]);
  });

  it('is asked for again when the relay knows which files are missing', async () => {
    await stack({ path: '/gone/a.py' }, { path: '/here/b.py' }, { path: '/gone/a.py' });
    const expression = 'ray-relay missing ["/gone/a.py"]';
    expect(toRelay).toMatchObject([
      { seq: FIRST_SEQ, command: 'evaluate', arguments: { expression, context: 'repl' } },
    ]);
    expect(toEditor).toEqual([]);
    expect(sources.takes(reply(FIRST_SEQ, true))).toBe(true);
    expect(toRelay[1]).toEqual(request(3));
    // The second answer passes, whatever it says.
    expect(sources.takes(answer(3, { path: '/gone/a.py' }))).toBe(false);
    expect(toEditor).toEqual([]);
  });

  it('passes as it is if the relay refuses', async () => {
    await stack({ path: '/gone/a.py' });
    expect(sources.takes(reply(FIRST_SEQ, false))).toBe(true);
    expect(toEditor).toEqual([answer(3, { path: '/gone/a.py' })]);
  });

  it('passes as it is if the relay does not answer in time, and a late answer goes nowhere', async () => {
    await stack({ path: '/gone/a.py' });
    await vi.advanceTimersByTimeAsync(3_000);
    expect(toEditor).toEqual([answer(3, { path: '/gone/a.py' })]);
    expect(sources.takes(reply(FIRST_SEQ, true))).toBe(true);
    expect(toRelay).toHaveLength(1);
  });

  it('does not wait for a disk that does not answer', async () => {
    await stack({ path: '/on/a/lost/network.py' });
    await vi.advanceTimersByTimeAsync(1_000);
    expect(toEditor).toHaveLength(1);
    expect(toRelay).toEqual([]);
  });

  it('that fails passes', () => {
    sources.request(request(3));
    const failed = { ...answer(3), success: false, body: { error: { id: 1, format: 'no' } } };
    expect(sources.takes(failed)).toBe(false);
  });
});

it('other messages pass', () => {
  for (const message of [{}, reply(5, true), { type: 'event', event: 'stopped' }, answer(9, { path: '/gone/a.py' })]) {
    expect(sources.takes(message)).toBe(false);
  }
  expect(toRelay).toEqual([]);
});

it('nothing is sent after the session has ended', async () => {
  await stack({ path: '/gone/a.py' });
  sources.dispose();
  await vi.advanceTimersByTimeAsync(10_000);
  expect(toEditor).toEqual([]);
});
