// The words next to a task in the side bar.

import { describe, expect, it } from 'vitest';

import { countOf, descriptionOf, labelOf, stateOf } from '../src/view/rows.js';
import { NOW, SINCE, task, tasks } from './support/rows.js';

describe('a state in words', () => {
  const held = (change: object) => ({ holder: { session: 1, since: SINCE, ...change } });
  const parked = { parked_until: NOW / 1000 + 60 };
  it.each<[object, string | null, RegExp]>([
    [{}, null, /^paused for 2m$/],
    [{ state: 'unreachable' }, null, /^unreachable, paused for 2m$/],
    [{ kind: 'pdb' }, null, /^paused for 2m, in Ray's legacy debugger$/],
    [{ exception: 'ValueError' }, null, /^ValueError, 2m ago$/],
    [{ task_ended: 1 }, null, /^paused for 2m, its task has ended$/],
    [{ task_ended: 1, ...held({ subject: 'ada' }) }, 'ada', /^held by you for 2m, its task has ended$/],
    [{ task_ended: 1, ...held({ subject: 'ada' }) }, 'bob', /^held by ada for 2m, its task has ended$/],
    [
      { task_ended: 1, ...held({ subject: 'ada', ...parked }) },
      'bob',
      /^parked for ada until \S.*, its task has ended$/,
    ],
    [{ first_seen: NOW / 1000 + 60 }, null, /^paused for 0s$/],
    [held({ subject: 'ada' }), 'ada', /^held by you for 2m$/],
    [held({ subject: 'ada' }), 'bob', /^held by ada for 2m$/],
    [held({ subject: 'ada' }), null, /^held by ada for 2m$/],
    [held({ client: 'vim' }), null, /^held by vim for 2m$/],
    [held({}), null, /^held by somebody for 2m$/],
    [held({ subject: 'ada', ...parked }), 'ada', /^parked for you until \S/],
    [held({ subject: 'ada', ...parked }), 'bob', /^parked for ada until \S/],
    [held({ client: 'vim', ...parked }), 'ada', /^parked for vim until \S/],
    [held({ client: 'vim', ...parked }), null, /^parked until \S/],
    [held({ subject: 'ada', ...parked }), null, /^parked for ada until \S/],
    [held({ ...parked }), 'ada', /^parked for somebody until \S/],
    [{ task_ended: 1, ...held(parked) }, null, /^parked until \S.*, its task has ended$/],
  ])('%j for %s', (change, me, expected) => {
    expect(stateOf(task(change), me, NOW)).toMatch(expected);
  });

  // The user is not known yet, or the relay knows no users.
  it('does not call a park of an unknown user yours', () => {
    expect(stateOf(task(held({ client: 'vim', ...parked })), null, NOW)).not.toContain('you');
  });
});

describe('a description', () => {
  it.each([
    [{ location: { file: 'C:\\a\\b.py', line: 2 }, node_ip: '10.0.0.3' }, 'b.py:2 · paused for 2m · 10.0.0.3'],
    [{ resources: { GPU: 1 } }, 'paused for 2m · 1 GPU'],
    [{ resources: { GPU: 0.5, CPU: 1 } }, 'paused for 2m · 0.5 GPUs'],
    [{ resources: { GPU: 0 } }, 'paused for 2m'],
  ])('of %j', (change, expected) => {
    expect(descriptionOf(task(change), null, NOW)).toBe(expected);
  });

  it('labels a rank, and else the name', () => {
    expect(['rank 0', 'train']).toEqual([labelOf(task({ rank: 0 })), labelOf(task())]);
  });
});

describe('a count', () => {
  const holder = { session: 1, since: SINCE, subject: 'ada', parked_until: NOW / 1000 + 60 };
  const parked = { state: 'parked', holder };
  const attached = { state: 'attached', holder: { ...holder, parked_until: null } };
  const all = tasks({}, { state: 'unreachable' }, { state: 'unlisted' }, parked, parked, attached);

  it('has what is paused, what is parked for the user, and what is held', () => {
    expect(countOf(all, 'ada')).toBe('3 paused, 2 parked for you, 1 held');
  });

  it('has what is parked for others as held', () => {
    expect(countOf(all, 'bob')).toBe('3 paused, 3 held');
    expect(countOf(all, null)).toBe('3 paused, 3 held');
  });

  it.each<[object[], string]>([
    [[], '0 paused'],
    [[{}], '1 paused'],
    [[parked], '1 parked for you'],
    [[attached], '1 held'],
    [[parked, attached], '1 parked for you, 1 held'],
  ])('leaves out what there is none of: %j', (changes, expected) => {
    expect(countOf(tasks(...changes), 'ada')).toBe(expected);
  });

  it('has what is parked where there are no names as parked for the user', () => {
    expect(countOf(tasks({ ...parked, holder: { ...holder, subject: null } }), null)).toBe('1 parked for you');
  });
});
