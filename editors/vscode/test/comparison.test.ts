// The page of what differs between ranks. Its texts are values of a worker.

import * as v from 'valibot';
import { describe, expect, it } from 'vitest';

import { Comparison, pageOfComparison } from '../src/view/comparison.js';

const HOSTILE = `</style></code><script>alert(1)</script><img src=x onerror="alert(1)"><a href='command:evil'>&amp;`;
const ESCAPED =
  '&lt;/style&gt;&lt;/code&gt;&lt;script&gt;alert(1)&lt;/script&gt;&lt;img src=x onerror=&quot;alert(1)&quot;&gt;' +
  '&lt;a href=&#39;command:evil&#39;&gt;&amp;amp;';

const member = (number: number, change: object = {}) => ({
  number,
  breakpoint: { id: `t${number}`, title: `train ${number}` },
  ...change,
});
const answer = (who: string, text: string, odd = false) => ({ who, text, odd, members: [0] });
const difference = (change: object = {}) => ({
  what: 'variable',
  name: 'loss',
  frame: 'train.py:22 train',
  answers: [answer('3', 'nan', true), answer('0-2', '0.5')],
  ...change,
});
const same = (change: object = {}) => ({ what: 'variable', name: 'step', frame: null, text: '7', ...change });
const group = (change: object = {}) => ({ group: 'Trainer', differences: [difference()], ...change });

const read = (groups: object[], members: object[] = [0, 1, 2, 3].map((number) => member(number))) =>
  v.parse(Comparison, { members, groups });
const page = (...groups: object[]) => pageOfComparison('train', read(groups));
/** What a reader sees, a tag as a vertical line. */
const seen = (html: string) => html.replace(/<style>.*?<\/style>/s, '').replace(/(<[^>]*>\s*)+/g, '|');

describe('the page of a comparison', () => {
  it('names the odd rank first, with what is odd there', () => {
    const text = seen(page(group({ differences: [difference(), difference({ name: 'step' })] }), group()));
    expect(text).toContain('|Trainer|rank 3|differs in loss, step.|');
    expect(text.indexOf('rank 3')).toBeLessThan(text.indexOf('0.5'));
  });

  it('has the odd answer before the others', () => {
    expect(seen(page(group()))).toContain('|loss |train.py:22 train|≠|rank 3|nan|ranks 0-2|0.5|');
  });

  it('shows the odd answer of many without a click', () => {
    const answers = [answer('3', 'nan', true), answer('0', '1'), answer('1', '2'), answer('2', '3')];
    const html = page(group({ differences: [difference({ answers })] }));
    expect(html.indexOf('nan')).toBeLessThan(html.indexOf('<details>'));
    expect(seen(html)).toContain('|3 more values|');
  });

  it('folds many answers of which none is odd', () => {
    const answers = ['0', '1', '2'].map((who) => answer(who, `value ${who}`));
    const text = seen(page(group({ differences: [difference({ answers })] })));
    expect(text).toContain('|No rank is the odd one.|');
    expect(text).toContain('|3 values|rank 0|value 0|');
  });

  it.each([
    ['exception', 'raised'],
    ['line', 'stopped at'],
    ['place', 'stopped in'],
    ['callers', 'was called by'],
    ['other', 'other'],
  ])('calls %s "%s"', (what, expected) => {
    const text = seen(page(group({ differences: [difference({ what, name: null, frame: null })] })));
    expect(text).toContain(`|rank 3|differs in ${expected}.|`);
    expect(text).toContain(`|${expected}|≠|`);
  });

  it('says what is alike, and what was not compared', () => {
    const text = seen(
      page(group({ differences: [], same: [same()], noise: [same()], not_compared: [same(), same()] })),
    );
    expect(text).toContain('|Nothing differs.|1 alike|step|7|');
    expect(text).toContain('|1 different in every process|step|7|');
    expect(text).toContain('|2 not compared|step|7|');
  });

  it('says which tasks were not looked at, and why', () => {
    const members = [member(0), member(1), member(2, { error: 'its worker is gone' })];
    const text = seen(pageOfComparison('train', read([group()], members)));
    expect(text).toContain('|2 tasks compared. They stay paused.|');
    expect(text).toContain('|Not inspected|train 2: its worker is gone|');
  });

  it('cuts long values', () => {
    const long = 'Z'.repeat(5000);
    const html = page(
      group({ differences: [difference({ answers: [answer('0', long)] })], same: [same({ text: long })] }),
    );
    expect(html.match(/Z+/g)?.map((text) => text.length)).toEqual([2000, 2000]);
  });

  it.each([undefined, null, {}, { members: [], groups: [{}] }, { members: [{}], groups: [] }])(
    'is refused for %j',
    (given) => {
      expect(v.is(Comparison, given)).toBe(false);
    },
  );
});

describe('a hostile text', () => {
  const twice = [answer('0', 'a'), answer('1', 'b')];
  it.each<[string, object]>([
    ['the name of a group', group({ group: HOSTILE })],
    ['what is compared', group({ differences: [difference({ what: HOSTILE, name: null })] })],
    ['a name', group({ differences: [difference({ name: HOSTILE })] })],
    ['a name where none is odd', group({ differences: [difference({ name: HOSTILE, answers: twice })] })],
    ['a frame', group({ differences: [difference({ frame: HOSTILE })] })],
    ['who is odd', group({ differences: [difference({ answers: [answer(HOSTILE, 'a', true)] })] })],
    ['who answers', group({ differences: [difference({ answers: [answer(HOSTILE, 'a')] })] })],
    ['an odd value', group({ differences: [difference({ answers: [answer('0', HOSTILE, true)] })] })],
    ['a value', group({ differences: [difference({ answers: [...twice, answer('2', HOSTILE)] })] })],
    ...['same', 'noise', 'not_compared'].flatMap((key): [string, object][] => [
      [`a name in ${key}`, group({ [key]: [same({ name: HOSTILE })] })],
      [`what is compared in ${key}`, group({ [key]: [same({ name: null, what: HOSTILE })] })],
      [`a frame in ${key}`, group({ [key]: [same({ frame: HOSTILE })] })],
      [`a value in ${key}`, group({ [key]: [same({ text: HOSTILE })] })],
    ]),
  ])('is escaped as %s', (_, given) => {
    expectEscaped(page(given, group()));
  });

  it('is escaped as the title of the page, of a task, and as an error', () => {
    expectEscaped(pageOfComparison(HOSTILE, read([])));
    const breakpoint = { id: 't', title: HOSTILE };
    expectEscaped(pageOfComparison('train', read([], [member(0, { breakpoint, error: 'x' })])));
    expectEscaped(pageOfComparison('train', read([], [member(0, { error: HOSTILE })])));
  });

  function expectEscaped(html: string): void {
    expect(html).toContain(ESCAPED);
    expect(html).not.toMatch(/<script|<img|<a |&amp;(?!amp;)/);
    expect(html.match(/<\/style>/g)).toHaveLength(1);
    // Nothing is an address, a handler of events, or a style of its own.
    for (const tag of html.match(/<[^>]*>/g) ?? []) expect(tag).not.toMatch(/\s(href|src|style|on\w+)\s*=/i);
  }
});

describe('the policy of the page', () => {
  it('allows nothing but its own style, and stands before all else', () => {
    const policy = `<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">`;
    const html = page(group());
    expect(html.startsWith(`<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">${policy}`)).toBe(true);
    expect(html.match(/http-equiv/g)).toHaveLength(1);
  });

  it('has no script to forbid', () => {
    expect(page(group({ same: [same()] }))).not.toMatch(/<script|javascript:|@import|url\(/i);
  });
});
