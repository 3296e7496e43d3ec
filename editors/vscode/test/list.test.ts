// Lists of the relay: one row that cannot be read hides no other; and whose the rows are.

import * as v from 'valibot';
import { describe, expect, it } from 'vitest';

import { isFree, isParkedFor, List, MAX_ROWS } from '../src/relay/breakpoint.js';
import { REQUIRED, row } from './support/documented.js';

describe('a list', () => {
  const list = (breakpoints: unknown, clusters: unknown = []) => v.is(List, { breakpoints, clusters });

  it('may be empty', () => {
    expect(list([])).toBe(true);
  });

  it('has at most MAX_ROWS rows', () => {
    expect(list(Array.from({ length: MAX_ROWS }, () => REQUIRED))).toBe(true);
    expect(list(Array.from({ length: MAX_ROWS + 1 }, () => REQUIRED))).toBe(false);
  });

  it.each([[undefined], [null], [{}], ['rows']])('is refused with the rows %j', (rows) => {
    expect(list(rows)).toBe(false);
  });

  // Each user of a cluster can choose names.
  it.each([null, 1, 'row', [], {}, { ...REQUIRED, id: '../a' }, { ...REQUIRED, name: null }])(
    'has the other rows next to %j',
    (bad) => {
      const second = { ...REQUIRED, id: 'b' };
      const { breakpoints } = v.parse(List, { breakpoints: [REQUIRED, bad, second], clusters: [] });
      expect(breakpoints).toEqual([row(), row({ id: 'b' })]);
    },
  );
});

describe('isParkedFor', () => {
  const parked = (subject: string | null, parked_until: number | null = 5) =>
    row({ state: 'parked', holder: { session: 1, since: 1, subject, parked_until } });

  it('is true for the user who has parked it, and for everybody where there are no names', () => {
    expect(isParkedFor(parked('ada'), 'ada')).toBe(true);
    expect(isParkedFor(parked(null), null)).toBe(true);
  });

  it('is false for others, for a debugger that is attached, and where nobody holds it', () => {
    expect(isParkedFor(parked('ada'), 'bob')).toBe(false);
    expect(isParkedFor(parked('ada'), null)).toBe(false);
    expect(isParkedFor(parked(null), 'ada')).toBe(false);
    expect(isParkedFor(parked('ada', null), 'ada')).toBe(false);
    expect(isParkedFor(row(), null)).toBe(false);
  });
});

describe('isFree', () => {
  it.each(['paused', 'unreachable', 'unlisted'])('%s', (state) => {
    expect(isFree(row({ state }))).toBe(true);
    expect(isFree(row({ state, kind: 'pdb' }))).toBe(false);
  });

  it.each(['attached', 'parked', 'released', 'died', 'finished', 'other', ''])('not %j', (state) => {
    expect(isFree(row({ state }))).toBe(false);
  });
});
