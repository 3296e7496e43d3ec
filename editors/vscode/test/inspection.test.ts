// What a failed task has left is shown as a snapshot.

import * as v from 'valibot';
import { expect, it } from 'vitest';

import { Inspections, snapshotOf } from '../src/view/inspection.js';
import { textOfSnapshot } from '../src/view/snapshot.js';

const read = (looks: object[]) => snapshotOf(v.parse(Inspections, { looks, left_out: 0 }));

it('has its exception and the innermost frame first', () => {
  const frames = [
    { file: '/job/a.py', line: 6, function: 'inner', locals: [{ name: 'n', type: 'int', value: '3', cut: false }] },
    { file: '/job/a.py', line: 12, function: 'outer', locals: null },
  ];
  const snapshot = read([{ look: { pid: 1, threads: [{ name: 'MainThread', raised: "ValueError('x')", frames }] } }]);
  if (typeof snapshot === 'string') expect.fail(snapshot);
  expect(textOfSnapshot('bad has failed', snapshot, 'As its exception left it.').split('\n')).toEqual([
    'bad has failed',
    'As its exception left it.',
    '',
    "ValueError('x')",
    '',
    'inner · a.py:6 · /job/a.py',
    '  -> line 6, without its source',
    '    n: int = 3',
    '',
    'outer · a.py:12 · /job/a.py',
    '',
  ]);
});

it.each([
  [[], 'Nothing is kept of it any more.'],
  [[{ error: 'its agent is gone' }], 'its agent is gone'],
  [[{ look: null }], 'Nothing is kept of it any more.'],
])('says why there is nothing: %j', (looks, expected) => {
  expect(read(looks)).toBe(expected);
});
