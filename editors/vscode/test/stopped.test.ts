// Which sessions have stopped, and which of them are resumed.

import { expect, it } from 'vitest';

import { isContinueAnswer, sessionsToResume, StoppedThread, type OpenSession } from '../src/dap/stopped.js';

const stopped = (threadId: unknown) => ({ type: 'event', event: 'stopped', body: { reason: 'breakpoint', threadId } });
const answer = (command: string, success: boolean) => ({ type: 'response', request_seq: 3, command, success });

/** The thread after `messages`, and how often it has changed. */
function after(...messages: unknown[]): [number | undefined, number] {
  let changes = 0;
  const thread = new StoppedThread(() => (changes += 1));
  for (const message of messages) thread.fromRelay(message);
  return [thread.id, changes];
}

it('is the thread of the last stop', () => {
  expect(after()).toEqual([undefined, 0]);
  expect(after(stopped(3), stopped(4), stopped(4))).toEqual([4, 2]);
});

it.each(['continue', 'next', 'stepIn', 'stepOut'])('is none after a task has accepted %s', (command) => {
  expect(after(stopped(3), answer(command, true))).toEqual([undefined, 2]);
  expect(after(stopped(3), answer(command, false), answer('evaluate', true))).toEqual([3, 1]);
});

it('continues after the answer to continue alone', () => {
  expect([answer('continue', true), answer('continue', false), answer('next', true)].map(isContinueAnswer)).toEqual([
    true,
    false,
    false,
  ]);
});

it('is none after the task continued by itself', () => {
  expect(after(stopped(3), { type: 'event', event: 'continued', body: { threadId: 3 } })).toEqual([undefined, 2]);
});

it.each([[null], ['stopped'], [stopped('3')], [stopped(undefined)], [{ type: 'event', event: 'stopped' }]])(
  'is none after %j',
  (message) => {
    expect(after(message)).toEqual([undefined, 0]);
  },
);

/** Sessions as `NAME: PARENT/TASK`; a `*` in front of NAME: it has stopped. */
const sessions = (...texts: string[]): OpenSession<string>[] =>
  texts.map((text) => {
    const [, star, session = '', parent, task] = /^(\*?)(\w+): (\w*)\/(\w*)$/.exec(text) ?? [];
    return { session, parent: parent || undefined, task: task || undefined, threadId: star === '*' ? 1 : undefined };
  });

it.each([
  ['a session', ['*a: /t1'], ['t1'], ['a']],
  ['no session that runs', ['a: /t1'], ['t1'], []],
  ['no session of another task', ['*a: /t1'], ['t2'], []],
  ['the cluster session of all tasks', ['*P: /', '*a: P/t1', '*b: P/t2'], ['t1', 't2'], ['P']],
  ['their sessions, if it has others', ['*P: /', '*a: P/t1', '*b: P/t2', '*c: P/t3'], ['t1', 't2'], ['a', 'b']],
  ['their sessions, if another runs', ['*P: /', '*a: P/t1', 'c: P/t3'], ['t1'], ['a']],
  ['their sessions, if it has not stopped', ['P: /', '*a: P/t1'], ['t1'], ['a']],
  // A subprocess has the id of its task.
  ['a subprocess besides', ['*P: /', '*a: P/t1', '*b: P/t2', '*s: a/t1'], ['t1', 't2'], ['P', 's']],
  ['no cluster session without tasks', ['*P: /'], ['t1'], []],
])('resumes %s', (_, open, ids, expected) => {
  expect(sessionsToResume(sessions(...open), new Set(ids)).map(({ session }) => session)).toEqual(expected);
});
