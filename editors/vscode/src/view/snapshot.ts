// What a paused task shows without a debugger: a read-only text of its stack, source and variables. Pure.

import * as v from 'valibot';

import { fileName, oneLine } from '../text.js';
import { nullish } from '../relay/schema.js';

/** Longest name of a function, file, thread or variable. */
const MAX_NAME = 1000;

/** Longest line of source. */
const MAX_LINE = 1000;

/** All that VS Code takes for the end of a line. */
const LINE_ENDS = /\r\n|[\r\n\u2028\u2029]/g;

export const Variable = v.object({
  name: v.string(),
  type: nullish(v.string()),
  value: v.fallback(v.string(), ''),
});

const Frame = v.object({
  function: v.string(),
  file: v.fallback(v.string(), ''),
  line: nullish(v.number()),
  /** Number of the first of `lines`. */
  first: nullish(v.number()),
  lines: nullish(v.array(v.string())),
  source: nullish(v.string()),
  variables: nullish(v.array(Variable)),
});
type Frame = v.InferOutput<typeof Frame>;

const Thread = v.object({
  name: v.fallback(v.string(), ''),
  /** The innermost frame last. */
  frames: v.fallback(v.array(Frame), []),
  exception: nullish(v.string()),
  raised: nullish(v.array(Frame)),
});

export const TaskSnapshot = v.object({ threads: v.array(Thread) });
export type TaskSnapshot = v.InferOutput<typeof TaskSnapshot>;

/** How the line begins at which a frame is stopped. */
export const CURRENT_LINE = '  ->';

/** The text of a snapshot, the innermost frame first. `title` is its first line. */
export function textOfSnapshot(
  title: string,
  snapshot: TaskSnapshot,
  note = 'Inspected without attaching: the task stays as it is.',
): string {
  const parts = [title, note, ''];
  for (const thread of snapshot.threads) {
    if (snapshot.threads.length > 1) parts.push(`Thread ${oneLine(thread.name, MAX_NAME)}`, '');
    if (thread.exception !== null) {
      parts.push(thread.exception.trimEnd(), '');
      parts.push(...textOfFrames(thread.raised ?? []));
      if (thread.frames.length > 0) parts.push('Where that was handed to the debugger:', '');
    }
    parts.push(...textOfFrames(thread.frames));
  }
  return parts.join('\n');
}

function textOfFrames(frames: Frame[]): string[] {
  return [...frames].reverse().flatMap((frame, depth) => {
    const location = frame.file === '' ? '' : `${fileName(frame.file)}${frame.line === null ? '' : `:${frame.line}`}`;
    const title = [frame.function, location, frame.file].filter(Boolean).join(' · ');
    return [oneLine(title, MAX_NAME), ...sourceOf(frame, depth === 0), ...variablesOf(frame), ''];
  });
}

/** The source around the line of `frame`; without source, the number of that line if the frame `isInnermost`. */
function sourceOf(frame: Frame, isInnermost: boolean): string[] {
  const { lines, first } = frame;
  if (lines === null || first === null) {
    if (frame.source !== null) return [`${CURRENT_LINE} ${oneLine(frame.source, MAX_LINE)}`];
    return isInnermost && frame.line !== null ? [`${CURRENT_LINE} line ${frame.line}, without its source`] : [];
  }
  const width = String(first + lines.length - 1).length;
  return lines.map((line, at) => {
    const number = first + at;
    return `${number === frame.line ? CURRENT_LINE : '    '} ${String(number).padStart(width)}  ${line.replace(LINE_ENDS, ' ')}`;
  });
}

function variablesOf(frame: Frame): string[] {
  return (frame.variables ?? []).map(({ name, type, value }) => {
    const [head, ...rest] = value.split(LINE_ENDS);
    const text = [head, ...rest.map((line) => `        ${line}`)].join('\n');
    return `    ${oneLine(`${name}${type === null ? '' : `: ${type}`}`, MAX_NAME)} = ${text}`;
  });
}
