// The text of a verdict about a job.

import * as v from 'valibot';
import { expect, it } from 'vitest';

import { textOfVerdict, Verdict } from '../src/view/verdict.js';

const ANSWER = {
  verdict: 'hangs',
  confidence: 'likely',
  summary: 'Rank 2 sleeps.',
  culprits: [],
  evidence: ['7 of 8 wait in all_reduce.'],
  waiting: [],
  differences: [],
  next: ['ray-relay snapshot 7k2m9qxd'],
  clusters: [],
};

it('has the summary, the evidence and what shows more', () => {
  expect(textOfVerdict('ann-train', v.parse(Verdict, ANSWER))).toBe(
    [
      'Why the job ann-train does not go on (likely)',
      '',
      'Rank 2 sleeps.',
      '',
      'Evidence',
      '  7 of 8 wait in all_reduce.',
      '',
      'Commands of ray-relay that show more',
      '  ray-relay snapshot 7k2m9qxd',
      '',
    ].join('\n'),
  );
});

it('keeps a hostile sentence on its line', () => {
  const text = textOfVerdict('a\nb', v.parse(Verdict, { ...ANSWER, summary: 'x\n\u202ey', evidence: [], next: [] }));
  expect(text).toBe('Why the job a b does not go on (likely)\n\nx \ufffdy\n');
});
