// The text of the status bar.

import { describe, expect, it } from 'vitest';

import type { Breakpoint } from '../src/relay/breakpoint.js';
import { statusOf } from '../src/view/summary.js';
import { task as taskOf } from './support/rows.js';

let made = 0;
const task = (change: object = {}) => taskOf({ id: `t${(made += 1)}`, ...change });
const at = (file: string, line: number) => ({ location: { file, line } });

/** Ranks of one group, `count` of `world`, which stand where `places` says, and else at train.py:22. */
function ranks(count: number, world: number | null, places: Record<number, object> = {}, more: object = {}) {
  return Array.from({ length: count }, (_, rank) =>
    task({ group: 'Trainer', rank, world_size: world, ...at('/a/train.py', 22), ...more, ...places[rank] }),
  );
}

const others = (count: number) => Array.from({ length: count }, (_, number) => task({ name: `other ${number}` }));

describe('the status bar', () => {
  it('says how many ranks are paused, and which one is elsewhere', () => {
    const tasks = ranks(7, 8, { 3: at('/a/loss.py', 9) });
    expect(statusOf([tasks])).toBe('7 of 8 paused · rank 3 at loss.py:9');
  });

  it.each<[string, Breakpoint[], string]>([
    ['one task', [task()], '1 paused'],
    ['several tasks', others(3), '3 paused'],
    ['all ranks', ranks(8, 8), '8 paused'],
    ['some ranks', ranks(5, 8), '5 of 8 paused'],
    ['ranks of an unknown number', ranks(5, null), '5 paused'],
    ['a group of one', ranks(1, 1), '1 paused'],
    ['more ranks than there should be', ranks(5, 4), '5 paused'],
    ['ranks, and fewer other tasks', [...ranks(5, 8), ...others(4)], '5 of 8 paused'],
    ['ranks, and as many other tasks', [...ranks(5, 8), ...others(5)], '10 paused'],
    ['the largest group', [...ranks(2, 4, {}, { job_id: '02' }), ...ranks(5, 8)], '5 of 8 paused'],
    ['ranks of two jobs', ['01', '02'].flatMap((job_id) => ranks(3, 4, {}, { job_id })), '6 paused'],
    ['ranks of two clusters', ['a', 'b'].flatMap((cluster) => ranks(3, 4, {}, { cluster })), '6 paused'],
  ])('has %s', (_, tasks, expected) => {
    expect(statusOf([tasks])).toBe(expected);
  });

  it('names the odd one of tasks without ranks', () => {
    const tasks = [1, 1, 5].map((line) => task(at('a.py', line)));
    expect(statusOf([tasks])).toBe('3 paused · train at a.py:5');
  });

  it('names the odd one where another rank has no place', () => {
    const tasks = ranks(4, 4, { 0: { location: null }, 2: at('/a/loss.py', 9) });
    expect(statusOf([tasks])).toBe('4 paused · rank 2 at loss.py:9');
  });

  it.each<[string, Breakpoint[]]>([
    ['all stand at one place', ranks(4, 4)],
    ['there are two', ranks(2, 2, { 1: at('/a/loss.py', 9) })],
    ['two stand elsewhere', ranks(5, 5, { 1: at('/a/loss.py', 9), 2: at('/a/loss.py', 9) })],
    ['there are three places', ranks(5, 5, { 1: at('/a/loss.py', 9), 2: at('/a/loss.py', 10) })],
    ['one has no place', ranks(4, 4, { 1: { location: null } })],
    ['the other one is in no group with them', [...ranks(3, 3), task(at('/a/loss.py', 9))]],
  ])('names none if %s', (_, tasks) => {
    expect(statusOf([tasks])).not.toContain('·');
  });

  it('has one line without invisible characters', () => {
    const hostile = 'a\u202eb\n\u2028c\u0000';
    const tasks = [1, 1, 5].map((line) => task({ name: hostile, ...at(hostile, line) }));
    expect(statusOf([tasks])).toBe('3 paused · a\ufffdb c\ufffd at a\ufffdb c\ufffd:5');
  });
});
