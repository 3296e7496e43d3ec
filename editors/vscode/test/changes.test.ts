// The notices about a list that changes.

import { expect, it } from 'vitest';

import type { Breakpoint } from '../src/relay/breakpoint.js';
import { Changes } from '../src/view/changes.js';
import { cluster, SINCE, task } from './support/rows.js';

const WHOLE = { snapshot_age_seconds: 1 };
const UNREAD = { snapshot_age_seconds: null };
const GONE = 'rank 3 of job was parked for you. It is no longer paused: it was released, or has ended.';

const mine = (id: string, change: object = {}) =>
  task({ id, submitter: 'ann', rank: 3, submission_id: 'job', title: 'train', ...change });
const held = (until: number | null, subject = 'ann') => ({
  state: until === null ? 'attached' : 'parked',
  holder: { session: 1, subject, client: 'VS Code', since: SINCE, parked_until: until },
});
const parked = (id: string, subject = 'ann') => mine(id, held(SINCE + 3600, subject));

/** The sentences after each of `lists`. */
function after(lists: Breakpoint[][], released = new Set<string>(), states: object[] = []): string[][] {
  const changes = new Changes();
  return lists.map((breakpoints, at) =>
    changes
      .since({ breakpoints, clusters: [cluster(states[at] ?? WHOLE)] }, 'ann', released)
      .map((change) => change.text),
  );
}

it('says that a task of the user is paused, if nobody has attached to it by the next list', () => {
  const one = mine('a', { title: 'train rank 3', location: { file: '/x/loss.py', line: 9 } });
  expect(after([[], [one], [one], [one]])).toEqual([[], [], ['train rank 3 is paused at loss.py:9.'], []]);
  expect(after([[], [one], [mine('a', held(null))], [one]])).toEqual([[], [], [], []]);
});

it('is one sentence for many', () => {
  const all = [mine('a'), mine('b')];
  expect(after([[], all, all])).toEqual([[], [], ['2 tasks of job are paused.']]);
});

it('says nothing of what was paused when the list was read first', () => {
  const one = [mine('a')];
  expect(after([one, one, one])).toEqual([[], [], []]);
  expect(after([[], one, one, one], new Set(), [UNREAD, UNREAD, WHOLE, WHOLE])).toEqual([[], [], [], []]);
});

it('says nothing again after a relay that has just started has had no list', () => {
  const one = [mine('a')];
  expect(after([one, [], one, one, one], new Set(), [WHOLE, UNREAD, WHOLE, WHOLE, WHOLE]).flat()).toEqual([]);
});

it('says it of a worker that has run in between', () => {
  const one = [mine('a')];
  expect(after([one, [], one, one])).toEqual([[], [], [], ['train is paused.']]);
});

it.each([[null], ['bob'], [undefined]])('says nothing of a task whose job %j has submitted', (submitter) => {
  const one = mine('a', { submitter });
  expect(after([[], [one], [one]])).toEqual([[], [], []]);
});

it('says that a task was parked for the user, and has gone from two lists', () => {
  expect(after([[parked('a')], [], [], []])).toEqual([[], [], [GONE], []]);
  expect(after([[parked('a'), parked('b')], [], []])[2]).toEqual([
    '2 tasks of job were parked for you. They are no longer paused: they were released, or have ended.',
  ]);
  expect(after([[parked('a')], [], [parked('a')], [parked('a')]]).flat()).toEqual([]);
});

it('says nothing of one that the user has resumed, or that is parked for another', () => {
  expect(after([[parked('a')], [mine('a', held(null))], [], []]).flat()).toEqual([]);
  expect(after([[parked('a', 'bob')], [], []]).flat()).toEqual([]);
});

it('says nothing of one that the user has released, and says it of the next stop of that worker', () => {
  const released = new Set(['a']);
  expect(after([[parked('a')], [parked('a')], [], [], [parked('a')], [], []], released)).toEqual([
    [],
    [],
    [],
    [],
    [],
    [],
    [GONE],
  ]);
  expect(released.size).toBe(0);
});

it.each([
  ['has not been read yet', UNREAD],
  ['is incomplete', { ...WHOLE, complete: false }],
  ['is old', { ...WHOLE, trouble: 'The head does not answer.' }],
  ['is that of a head that starts', { ...WHOLE, pending: true }],
])('says nothing while the list %s, and says it then', (_, state) => {
  const states = [WHOLE, state, state, WHOLE, WHOLE, WHOLE];
  expect(after([[parked('a')], [], [], [], [], []], new Set(), states)).toEqual([[], [], [], [], [GONE], []]);
});

it('says nothing without names', () => {
  const changes = new Changes();
  const lists = [[], [mine('a', { submitter: null })], [mine('a', { submitter: null })]];
  const texts = lists.flatMap((breakpoints) =>
    changes.since({ breakpoints, clusters: [cluster(WHOLE)] }, null, new Set()),
  );
  expect(texts).toEqual([]);
});
