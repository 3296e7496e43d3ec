// Untrusted texts as they are shown, and durations.

import { describe, expect, it } from 'vitest';

import { briefSpan, fileName, oneLine, span, withoutLinks, withoutVariables, wrapped } from '../src/text.js';

describe('oneLine', () => {
  it.each([
    ['a', 'a'],
    ['', ''],
    ['  a  b\tc\r\nd\u2028e\u2029f\u00a0g ', 'a b c d e f g'],
    ['größer 日本 🐍', 'größer 日本 🐍'],
    ['a\u0000b', 'a\ufffdb'],
    ['a\u001b[31mb', 'a\ufffd[31mb'],
    ['a\u009bb', 'a\ufffdb'],
  ])('shows %j as %j', (text, expected) => {
    expect(oneLine(text, 100)).toBe(expected);
  });

  it.each([
    0x00ad, 0x034f, 0x061c, 0x115f, 0x1160, 0x200b, 0x200e, 0x200f, 0x202a, 0x202e, 0x2060, 0x2066, 0x2069, 0x3164,
    0xe0041,
  ])('shows that there is a character that is invisible or turns the text: %i', (code) => {
    expect(oneLine(`a${String.fromCodePoint(code)}b`, 100)).toBe('a\ufffdb');
  });

  it('cuts what is longer than the limit, and says so', () => {
    expect(oneLine('abcdef', 6)).toBe('abcdef');
    expect(oneLine('abcdefg', 6)).toBe('abcde…');
  });

  it('counts after the text is clean', () => {
    expect(oneLine('  a    b\n', 3)).toBe('a b');
  });

  it('does not cut a character of two units', () => {
    expect(oneLine('🐍🐍🐍', 6)).toBe('🐍🐍🐍');
    for (let most = 2; most < 20; most += 1) {
      const cut = oneLine('a🐍'.repeat(10), most);
      // Half a character.
      expect(cut, `${most}`).not.toMatch(/\p{Cs}/u);
      expect(cut.length, `${most}`).toBeLessThanOrEqual(most);
      expect(cut.length, `${most}`).toBeGreaterThanOrEqual(most - 1);
    }
  });
});

describe('withoutLinks', () => {
  it.each([
    ['[a](command:b)', '[a] (command:b)'],
    ['[a](b)[c](d)', '[a] (b)[c] (d)'],
    ['[[a](b)](c)', '[[a] (b)] (c)'],
    ['](](', '] (] ('],
    ['[a] (b) c(d) [e]', '[a] (b) c(d) [e]'],
  ])('shows %s as %s', (text, expected) => {
    expect(withoutLinks(text)).toBe(expected);
  });
});

describe('withoutVariables', () => {
  it.each([
    ['${env:A}', '$ {env:A}'],
    ['${a}${b}', '$ {a}$ {b}'],
    ['$${a}', '$$ {a}'],
    ['${${a}}', '$ {$ {a}}'],
    ['$a {b} $ {c}', '$a {b} $ {c}'],
  ])('shows %s as %s', (text, expected) => {
    expect(withoutVariables(text)).toBe(expected);
  });
});

describe('a duration', () => {
  it.each([
    [-5, '0s', '0s'],
    [0, '0s', '0s'],
    [14.9, '14s', '14s'],
    [59, '59s', '59s'],
    [60, '1m 00s', '1m'],
    [134, '2m 14s', '2m'],
    [3599, '59m 59s', '59m'],
    [3600, '1h 00m', '1h'],
    [10_920, '3h 02m', '3h'],
    [86_399, '23h 59m', '23h'],
    [86_400, '1d 0h', '1d'],
    [187_200, '2d 4h', '2d'],
    [864_000_000, '10000d 0h', '10000d'],
  ])('of %d seconds is %s, and in short %s', (seconds, expected, brief) => {
    expect(span(seconds)).toBe(expected);
    expect(briefSpan(seconds)).toBe(brief);
  });
});

describe('fileName', () => {
  it.each([
    ['/a/b.py', 'b.py'],
    ['C:\\a\\b.py', 'b.py'],
    ['b.py', 'b.py'],
    ['', ''],
    ['/a/', ''],
  ])('of %j is %j', (path, expected) => {
    expect(fileName(path)).toBe(expected);
  });
});

describe('a long text', () => {
  it('is in lines of at most 100 characters, below the first', () => {
    const lines = wrapped('ok   ', 'word '.repeat(60).trim());
    expect(lines.map((line) => line.length)).toEqual([99, 99, 99, 19]);
    expect(lines[1]).toMatch(/^ {5}word /);
  });

  it('keeps a short text and a long word as they are', () => {
    expect(wrapped('ok   ', 'yes')).toEqual(['ok   yes']);
    expect(wrapped('', `a ${'b'.repeat(200)} c`)).toEqual(['a', 'b'.repeat(200), 'c']);
  });
});
