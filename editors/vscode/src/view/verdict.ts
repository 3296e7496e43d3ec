// How a job goes on or why it hangs, as the relay judges it: a read-only text. Pure.

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
  /** `hangs`, `slow`, `differs`, `healthy` or `unknown`. */
  verdict: v.string(),
  confidence: v.string(),
  summary: v.string(),
  evidence: v.fallback(Sentences, []),
  next: v.fallback(Sentences, []),
});
export type Verdict = v.InferOutput<typeof Verdict>;

export function textOfVerdict(job: string, cluster: string, answer: Verdict): string {
  const clean = (text: string) => oneLine(text, MAX_SENTENCE);
  const list = (title: string, all: string[]) =>
    all.length === 0 ? [] : ['', title, ...all.flatMap((one) => wrapped('  ', clean(one)))];
  return [
    `Job ${clean(job)} of ${clean(cluster)}: ${clean(answer.verdict)} (${clean(answer.confidence)})`,
    '',
    ...wrapped('', clean(answer.summary)),
    ...list('Evidence', answer.evidence),
    ...list('What to do next', answer.next),
    '',
  ].join('\n');
}
