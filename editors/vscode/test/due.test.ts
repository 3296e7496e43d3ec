// What is announced before it ends, and only then.

import * as v from 'valibot';
import { expect, it } from 'vitest';

import { Breakpoint } from '../src/relay/breakpoint.js';
import { noticesDue } from '../src/view/due.js';

const NOW = 1_800_000_000;

const parked = (id: string, until: number | null, subject = 'ann') =>
  v.parse(Breakpoint, {
    id,
    kind: 'debugpy',
    state: 'parked',
    holder: { session: 1, subject, client: 'x', since: NOW - 50, parked_until: until },
    cluster: 'default',
    name: 'train',
    title: 'train',
    rank: 3,
    first_seen: NOW - 100,
  });

const due = (tasks: Breakpoint[], expires?: number) => noticesDue('prod', tasks, 'ann', expires, NOW, () => false);

it('says when a park of the user ends within ten minutes', () => {
  expect(due([parked('a', NOW + 540)])).toMatchObject([{ kind: 'park', text: 'Your park of rank 3 ends in 9m.' }]);
});

it('is one notice for several parks', () => {
  const [notice, ...more] = due([parked('a', NOW + 540), parked('b', NOW + 545), parked('c', NOW + 5_400)]);
  expect(notice?.text).toBe('Your park of 2 tasks ends in 9m.');
  expect(more).toEqual([]);
});

it.each([
  ['a park with time left', parked('a', NOW + 601)],
  ['a park that has ended', parked('a', NOW - 1)],
  ['the park of another user', parked('a', NOW + 60, 'bob')],
  ['a session', parked('a', null)],
])('says nothing of %s', (_, task) => {
  expect(due([task])).toEqual([]);
});

it('says when the token expires', () => {
  expect(due([], NOW + 300)).toMatchObject([
    { kind: 'token', text: 'Your token for prod expires in 5m. Sessions end with it.' },
  ]);
  expect(due([], NOW + 601)).toEqual([]);
  expect(due([], NOW - 1)).toEqual([]);
});

it('announces each park once, whichever others end, and again after it was extended', () => {
  const known = new Set<string>();
  const texts = (tasks: Breakpoint[], now: number) =>
    noticesDue('prod', tasks, 'ann', undefined, now, (key) => known.has(key)).map(({ keys, text }) => {
      for (const key of keys) known.add(key);
      return text;
    });
  const [a, b] = [parked('a', NOW + 540), parked('b', NOW + 700)];
  expect(texts([a, b], NOW)).toEqual(['Your park of rank 3 ends in 9m.']);
  expect(texts([a, b], NOW + 120)).toEqual(['Your park of rank 3 ends in 9m.']);
  expect(texts([a], NOW + 130)).toEqual([]);
  expect(texts([parked('a', NOW + 900), b], NOW + 400)).toEqual(['Your park of rank 3 ends in 8m.']);
});
