// The text of a verdict about a job.

import * as v from 'valibot';
import { expect, it } from 'vitest';

import { textOfVerdict, Verdict } from '../src/view/verdict.js';

const ANSWER = {
  verdict: 'hangs',
  confidence: 'likely',
  summary: 'Rank 2 is paused at a breakpoint.',
  culprits: [],
  evidence: ['7 of 8 wait in all_reduce.'],
  waiting: [],
  differences: [],
  next: ['ray-relay debug 7k2m9qxd'],
  clusters: [],
};

const textOf = (change: object, job = 'ann-train') =>
  textOfVerdict(job, 'default', v.parse(Verdict, { ...ANSWER, ...change }));

it('has the summary, the evidence and what to do', () => {
  expect(textOf({})).toBe(
    [
      'Job ann-train of default: hangs (likely)',
      '',
      'Rank 2 is paused at a breakpoint.',
      '',
      'Evidence',
      '  7 of 8 wait in all_reduce.',
      '',
      'What to do next',
      '  ray-relay debug 7k2m9qxd',
      '',
    ].join('\n'),
  );
});

it('does not say of a healthy job that it hangs', () => {
  const healthy = { verdict: 'healthy', confidence: 'certain', summary: 'All make progress.', evidence: [], next: [] };
  expect(textOf(healthy)).toBe('Job ann-train of default: healthy (certain)\n\nAll make progress.\n');
});

it('keeps a hostile sentence on its line', () => {
  const text = textOf({ summary: 'x\n\u202ey', evidence: [], next: [] }, 'a\nb');
  expect(text).toBe('Job a b of default: hangs (likely)\n\nx \ufffdy\n');
});
