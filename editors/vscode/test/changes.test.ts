// What a user is told of a list that changes.

import { expect, it } from 'vitest';

import type { Breakpoint } from '../src/relay/breakpoint.js';
import { Changes } from '../src/view/changes.js';
import { cluster, SINCE, task } from './support/rows.js';

const WHOLE = { snapshot_age_seconds: 1 };

const mine = (id: string, change: object = {}) =>
  task({ id, submitter: 'ann', rank: 3, submission_id: 'job', ...change });
const held = (until: number | null, subject = 'ann') => ({
  state: until === null ? 'attached' : 'parked',
  holder: { session: 1, subject, client: 'VS Code', since: SINCE, parked_until: until },
});
const parked = (id: string, subject = 'ann') => mine(id, held(SINCE + 3600, subject));

/** What is said after each of `lists`. */
function said(lists: Breakpoint[][], released: string[] = [], clusters = lists.map(() => WHOLE as object)): string[][] {
  const changes = new Changes();
  return lists.map((breakpoints, at) =>
    changes
      .since({ breakpoints, clusters: [cluster(clusters[at])] }, 'ann', new Set(released))
      .map((change) => change.text),
  );
}

it('says that a task of the user is paused, if nobody has attached to it by the next look', () => {
  const one = mine('a', { title: 'train rank 3', location: { file: '/x/loss.py', line: 9 } });
  expect(said([[], [one], [one], [one]])).toEqual([[], [], ['train rank 3 is paused at loss.py:9.'], []]);
  expect(said([[], [one], [mine('a', held(null))], [one]])).toEqual([[], [], [], []]);
});

it('is one sentence for many', () => {
  const all = [mine('a'), mine('b')];
  expect(said([[], all, all])).toEqual([[], [], ['2 tasks of job are paused.']]);
});

it('says nothing of what was paused before', () => {
  expect(said([[mine('a')], [mine('a')], [mine('a')]])).toEqual([[], [], []]);
});

it('says it again at the next stop of the same worker', () => {
  const next = mine('a', { stop: 2, title: 'train' });
  expect(said([[mine('a')], [next], [next]])).toEqual([[], [], ['train is paused.']]);
});

it.each([[null], ['bob'], [undefined]])('says nothing of a task whose job %j has submitted', (submitter) => {
  const one = mine('a', { submitter });
  expect(said([[], [one], [one]])).toEqual([[], [], []]);
});

it('says that a task was parked for the user, and has gone', () => {
  expect(said([[parked('a')], []])).toEqual([[], ['rank 3 of job was parked for you, and is no longer paused.']]);
  expect(said([[parked('a'), parked('b')], []])[1]).toEqual([
    '2 tasks of job were parked for you, and are no longer paused.',
  ]);
});

it('says nothing of one that the user has resumed or released, or that is parked for another', () => {
  expect(said([[parked('a')], [mine('a', held(null))], []])).toEqual([[], [], []]);
  expect(said([[parked('a')], []], ['a'])).toEqual([[], []]);
  expect(said([[parked('a', 'bob')], []])).toEqual([[], []]);
});

it.each([
  ['has not been read yet', { snapshot_age_seconds: null }],
  ['is incomplete', { ...WHOLE, complete: false }],
  ['is old', { ...WHOLE, trouble: 'The head does not answer.' }],
  ['is that of a head that starts', { ...WHOLE, pending: true }],
])('says nothing while the list %s, and says it then', (_, state) => {
  expect(said([[parked('a')], [], [], []], [], [WHOLE, state, WHOLE, WHOLE])).toEqual([
    [],
    [],
    ['rank 3 of job was parked for you, and is no longer paused.'],
    [],
  ]);
});

it('says nothing without names', () => {
  const changes = new Changes();
  const lists = [[], [mine('a', { submitter: null })], [mine('a', { submitter: null })]];
  const texts = lists.flatMap((breakpoints) => changes.since({ breakpoints, clusters: [] }, null, new Set()));
  expect(texts).toEqual([]);
});
