// Schemas that the answers of a relay share.

import * as v from 'valibot';

import { cutTo } from '../text.js';

/** Longest text that is kept: a task has the name that its program gives it. */
const MAX_TEXT = 4096;

/** A text, cut where it is too long. */
export const Text = v.pipe(
  v.string(),
  v.transform((text) => cutTo(text, MAX_TEXT)),
);

/** `null` where there is no value. */
export const nullish = <T>(schema: v.GenericSchema<unknown, T>) => v.optional(v.nullable(schema), null);

/** An array without the elements that are not of `schema`: one that cannot be read must not hide the others. */
export function readable<T>(schema: v.GenericSchema<unknown, T>, most: number) {
  const elements = (all: unknown[]) =>
    all.flatMap((one) => {
      const parsed = v.safeParse(schema, one);
      return parsed.success ? [parsed.output] : [];
    });
  return v.pipe(v.array(v.unknown()), v.maxLength(most), v.transform(elements));
}
