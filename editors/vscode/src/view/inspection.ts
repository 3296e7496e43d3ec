// The answer to `/relay/v1/looks` about a failed task, as a snapshot. Pure.

import * as v from 'valibot';

import { Variable, type TaskSnapshot } from './snapshot.js';
import { nullish } from '../relay/schema.js';

const Frame = v.object({
  file: v.fallback(v.string(), ''),
  line: nullish(v.number()),
  function: v.string(),
  source: nullish(v.string()),
  locals: nullish(v.array(Variable)),
});

const Thread = v.object({
  name: nullish(v.string()),
  raised: nullish(v.string()),
  /** The innermost frame first. */
  frames: v.fallback(v.array(Frame), []),
});

export const Inspections = v.object({
  looks: v.array(
    v.object({
      look: nullish(v.object({ threads: v.array(Thread) })),
      error: nullish(v.string()),
    }),
  ),
});
export type Inspections = v.InferOutput<typeof Inspections>;

/** The snapshot of the first process; a text: why there is none. */
export function snapshotOf({ looks }: Inspections): TaskSnapshot | string {
  const [first] = looks;
  if (first?.look == null) return first?.error ?? 'Nothing is kept of it any more.';
  const threads = first.look.threads.map(({ name, raised, frames }) => {
    const stack = frames.map(({ locals, ...frame }) => ({ ...frame, first: null, lines: null, variables: locals }));
    stack.reverse();
    const isRaised = raised !== null;
    return { name: name ?? '', exception: raised, raised: isRaised ? stack : null, frames: isRaised ? [] : stack };
  });
  return { threads };
}
