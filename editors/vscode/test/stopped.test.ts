// Which thread of a session has stopped.

import { expect, it } from 'vitest';

import { StoppedThread } from '../src/dap/stopped.js';

const stopped = (threadId: unknown) => ({ type: 'event', event: 'stopped', body: { reason: 'breakpoint', threadId } });

it('is that of the last stop', () => {
  const thread = new StoppedThread();
  expect(thread.id).toBeUndefined();
  thread.fromRelay(stopped(3));
  thread.fromRelay(stopped(4));
  expect(thread.id).toBe(4);
});

it.each(['continue', 'next', 'stepIn', 'stepOut'])('is none after the request %s', (command) => {
  const thread = new StoppedThread();
  thread.fromRelay(stopped(3));
  thread.toRelay({ type: 'request', command: 'evaluate' });
  expect(thread.id).toBe(3);
  thread.toRelay({ type: 'request', command });
  expect(thread.id).toBeUndefined();
});

it('is none after the task continued by itself', () => {
  const thread = new StoppedThread();
  thread.fromRelay(stopped(3));
  thread.fromRelay({ type: 'event', event: 'continued', body: { threadId: 3 } });
  expect(thread.id).toBeUndefined();
});

it.each([[null], ['stopped'], [stopped('3')], [stopped(undefined)], [{ type: 'event', event: 'stopped' }]])(
  'is none after %j',
  (message) => {
    const thread = new StoppedThread();
    thread.fromRelay(message);
    expect(thread.id).toBeUndefined();
  },
);
