// The text of a snapshot.

import * as v from 'valibot';
import { describe, expect, it } from 'vitest';

import { TaskSnapshot, textOfSnapshot } from '../src/view/snapshot.js';

const textOf = (...threads: unknown[]) => textOfSnapshot('train', v.parse(TaskSnapshot, { threads }));

const INNER = {
  function: 'loss',
  file: '/a/loss.py',
  line: 9,
  first: 8,
  lines: ['def loss():', '    return x', '# end'],
  variables: [
    { name: 'x', type: 'int', value: '1' },
    { name: 'y', value: 'a\nb' },
  ],
};
const OUTER = { function: 'train', file: '/a/train.py', line: 22, source: '  loss()  ' };

describe('the text of a snapshot', () => {
  it('has the innermost frame first, with its source and variables', () => {
    expect(textOf({ name: 'MainThread', frames: [OUTER, INNER] })).toBe(
      [
        'train',
        'Inspected without attaching: the task stays as it is.',
        '',
        'loss · loss.py:9 · /a/loss.py',
        '      8  def loss():',
        '  ->  9      return x',
        '     10  # end',
        '    x: int = 1',
        '    y = a',
        '        b',
        '',
        'train · train.py:22 · /a/train.py',
        '  -> loss()',
        '',
      ].join('\n'),
    );
  });

  it('names threads only if there are several', () => {
    expect(textOf({ name: 'MainThread', frames: [OUTER] })).not.toContain('Thread');
    const text = textOf({ name: 'MainThread', frames: [OUTER] }, { name: 'other', frames: [INNER] });
    expect(text.split('\n').filter((line) => line.startsWith('Thread '))).toEqual([
      'Thread MainThread',
      'Thread other',
    ]);
  });

  it('has an exception and where it was raised before the frames', () => {
    const text = textOf({ exception: 'ValueError: no\n', raised: [INNER], frames: [OUTER] });
    const parts = ['ValueError: no\n\nloss ', 'Where that was handed to the debugger:\n\ntrain '];
    expect(parts.map((part) => text.indexOf(part))).toEqual(
      parts.map((part) => text.indexOf(part)).sort((a, b) => a - b),
    );
    for (const part of parts) expect(text).toContain(part);
  });

  it('does not speak of a debugger if no frame is left', () => {
    expect(textOf({ exception: 'ValueError', raised: null, frames: [] })).not.toContain('debugger');
  });

  it.each([
    ['a frame without a line', { function: 'f', file: 'a.py' }, 'f · a.py · a.py'],
    ['a frame without a file', { function: 'f', line: 3 }, 'f'],
    ['lines without a number', { function: 'f', file: 'a', lines: ['x = 1'] }, 'f · a · a'],
    ['a variable without a value', { function: 'f', file: 'a', variables: [{ name: 'x', value: 3 }] }, '    x = '],
  ])('shows %s', (_, frame, line) => {
    expect(textOf({ frames: [frame] }).split('\n')).toContain(line);
  });

  it('does not change the snapshot', () => {
    const snapshot = v.parse(TaskSnapshot, { threads: [{ frames: [OUTER, INNER] }] });
    textOfSnapshot('train', snapshot);
    expect(snapshot.threads[0]?.frames.map((frame) => frame.function)).toEqual(['train', 'loss']);
  });

  it('is short without threads', () => {
    expect(textOf()).toBe('train\nInspected without attaching: the task stays as it is.\n');
  });

  it('ignores unknown fields', () => {
    expect(textOf({ future: 1, frames: [{ ...OUTER, future: {} }] })).not.toContain('future');
  });

  it.each([undefined, null, {}, { threads: null }, { threads: [1] }])('is refused for %j', (answer) => {
    expect(v.is(TaskSnapshot, answer)).toBe(false);
  });

  // The width counts the line behind the last one.
  it('aligns line numbers to the last of them', () => {
    expect(textOf({ frames: [{ function: 'f', first: 8, lines: ['a', 'b'] }] })).toMatch(/^ {5}8 {2}a$/m);
  });

  // Names of functions, files, threads and variables are in one line each; a worker can choose them.
  it.each([
    ['function', { function: 'f\nfake  /etc/passwd:1', file: 'a' }],
    ['file', { function: 'f', file: 'a\nfake  /etc/passwd:1' }],
    ['variable', { function: 'f', variables: [{ name: 'x\nfake  /etc/passwd:1', value: '' }] }],
  ])('shows no false frame in the name of a %s', (_, frame) => {
    expect(textOf({ frames: [frame] })).not.toMatch(/^fake/m);
  });
});
