// What several tasks have in common, and what not: their stacks as one tree, and what each says of a variable.

import { fileName } from './text.js';

/** What is another one in each process and tells nothing: an address. */
const ADDRESS = /0x[0-9a-f]{6,}/g;
/** Where packages are installed, Ray among them. */
const PACKAGES = /(site|dist)-packages\//;

/**
 * The frames of the first of `threads` that has any, the outermost first: those of its exception, where it has one. What Ray has
 * around a task is left out.
 */
export function framesOf(threads) {
  const all = threads.map((thread) => (thread.raised?.length ? thread.raised : (thread.frames ?? [])));
  const frames = all.find((some) => some.length > 0) ?? [];
  const own = frames.findIndex(({ file }) => !PACKAGES.test(file));
  return frames.slice(Math.max(own, 0));
}

/** The stacks of `looks`, each `{ row, frames }`, as one tree of `{ call, rows, calls }`; where most are is first. */
export function tree(looks, depth = 0) {
  const at = Map.groupBy(looks.filter(({ frames }) => frames.length > depth), ({ frames }) => {
    const { file, line, function: name } = frames[depth];
    return `${name} (${fileName(file)}:${line})`;
  });
  const nodes = [...at].map(([call, some]) => ({ call, rows: some.map(({ row }) => row), calls: tree(some, depth + 1) }));
  return nodes.sort((a, b) => b.rows.length - a.rows.length);
}

/** The answers of `said`, pairs of a row and a text: `{ text, rows }`, what most say last. */
export function answers(said) {
  const by = Map.groupBy(said, ([, text]) => text.replace(ADDRESS, '0x…'));
  const all = [...by.values()].map((some) => ({ text: some[0][1], rows: some.map(([row]) => row) }));
  return all.sort((a, b) => a.rows.length - b.rows.length);
}

/**
 * The frames that more than one of `looks` has, the innermost first: `{ frame, rows, variables: [{ name, answers }] }`. A frame is
 * the same by its file and function; what differs comes first.
 */
export function frames(looks) {
  const by = new Map();
  for (const { row, frames: all } of looks) {
    all.forEach((frame, depth) => {
      const key = `${frame.function} (${frame.file})`;
      const called = `${frame.function} (${fileName(frame.file)})`;
      const known = by.get(key) ?? { frame: called, depth, rows: [], said: new Map() };
      by.set(key, known);
      known.depth = Math.max(known.depth, depth);
      if (known.rows.includes(row)) return;
      known.rows.push(row);
      for (const { name, value } of frame.variables ?? []) {
        const said = known.said.get(name) ?? [];
        known.said.set(name, said);
        said.push([row, value]);
      }
    });
  }
  const shared = [...by.values()].filter(({ rows }) => rows.length > 1).sort((a, b) => b.depth - a.depth);
  return shared.map(({ frame, rows, said }) => {
    const variables = [...said].map(([name, texts]) => {
      const missing = rows.filter((row) => !texts.some(([one]) => one === row));
      return { name, answers: answers([...texts, ...missing.map((row) => [row, '(not there)'])]) };
    });
    const differing = variables.filter((one) => one.answers.length > 1).sort((a, b) => a.answers.length - b.answers.length);
    return { frame, rows, variables: differing, alike: variables.filter((one) => one.answers.length === 1) };
  });
}

/** `rows` in classes, within each of which all `variables` have one answer; the smallest first. */
export function classes(rows, variables) {
  const answer = (row, one) => one.answers.findIndex((some) => some.rows.includes(row));
  const all = Map.groupBy(rows, (row) => variables.map((one) => answer(row, one)).join());
  return [...all.values()].sort((a, b) => a.length - b.length);
}
