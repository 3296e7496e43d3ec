// Which rows are drawn anew.

import { expect, it } from 'vitest';

import { Given, type Drawn } from '../src/view/given.js';

/** A row with the id and text `text`, unless they differ: `id=text`. */
const row = (text: string, ...children: Drawn[]): Drawn => {
  const [id = '', shown = id] = text.split('=');
  return { id, text: shown, children };
};

/** As VS Code requests `root`: the rows below it, and each of them. */
function give(given: Given, root: Drawn): void {
  given.row(root.id, root.text);
  const ids = root.children.map((child) => child.id);
  given.below(root.id, ids);
  for (const child of root.children) give(given, child);
}

/** The rows that change from `before` to `now`. */
function changed(before: Drawn, now: Drawn): string[] {
  const given = new Given();
  give(given, before);
  return given.changed(now);
}

it.each([
  ['none', row('root', row('job', row('a'))), row('root', row('job', row('a'))), []],
  ['a row', row('root', row('job', row('a'), row('b'))), row('root', row('job', row('a=x'), row('b'))), ['a']],
  [
    'rows of two jobs',
    row('root', row('j', row('a')), row('k', row('b'))),
    row('root', row('j', row('a=x')), row('k', row('b=x'))),
    ['a', 'b'],
  ],
  ['the row above a new one', row('root', row('job', row('a'))), row('root', row('job', row('a'), row('b'))), ['job']],
  [
    'the row above one that has gone',
    row('root', row('job', row('a'), row('b'))),
    row('root', row('job', row('b'))),
    ['job'],
  ],
  ['a row with all below it', row('root', row('job', row('a'))), row('root', row('job=x', row('a=x'))), ['job']],
  ['the root', row('root', row('a')), row('root', row('b')), ['root']],
])('is %s', (_, before, now, expected) => {
  expect(changed(before, now)).toEqual(expected);
});

it('is no row that was never given', () => {
  const given = new Given();
  given.below('root', ['job']);
  given.row('job', 'job');
  expect(given.changed(row('root', row('job', row('a'))))).toEqual([]);
});

it('is a row that comes back as it was, after it was given otherwise', () => {
  const given = new Given();
  give(given, row('root', row('a')));
  given.row('a', 'x');
  expect(given.changed(row('root', row('a')))).toEqual(['a']);
});

it('is not told by a row that was gone in between', () => {
  const given = new Given();
  give(given, row('root', row('job', row('a'))));
  expect(given.changed(row('root', row('job')))).toEqual(['job']);
  given.below('job', []);
  expect(given.changed(row('root', row('job', row('a=x'))))).toEqual(['job']);
});
