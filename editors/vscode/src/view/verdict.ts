// Why a job hangs, as the relay judges it: a read-only text. Pure.

import * as v from 'valibot';

import { oneLine, wrapped } from '../text.js';

/** Longest sentence. */
const MAX_SENTENCE = 2000;

/** Most sentences of a kind. */
const MAX_SENTENCES = 200;

const Sentences = v.pipe(
  v.array(v.string()),
  v.transform((all) => all.slice(0, MAX_SENTENCES)),
);

/** The answer to `POST /relay/v1/why` (docs/reference.md). */
export const Verdict = v.object({
  summary: v.string(),
  confidence: v.string(),
  evidence: v.fallback(Sentences, []),
  next: v.fallback(Sentences, []),
});
export type Verdict = v.InferOutput<typeof Verdict>;

export function textOfVerdict(job: string, { summary, confidence, evidence, next }: Verdict): string {
  const clean = (text: string) => oneLine(text, MAX_SENTENCE);
  const list = (title: string, all: string[]) =>
    all.length === 0 ? [] : ['', title, ...all.flatMap((one) => wrapped('  ', clean(one)))];
  return [
    `Why the job ${clean(job)} does not go on (${clean(confidence)})`,
    '',
    ...wrapped('', clean(summary)),
    ...list('Evidence', evidence),
    ...list('Commands of ray-relay that show more', next),
    '',
  ].join('\n');
}
