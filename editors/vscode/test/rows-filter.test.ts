// The filter of the side bar.

import { describe, expect, it } from 'vitest';

import { cluster, shown, SINCE, task, tasks } from './support/rows.js';

describe('a filter', () => {
  const holder = { session: 1, since: SINCE, subject: 'Ada' };
  const location = { file: '/src/Loss.py', line: 9 };
  const all = tasks({ submission_id: 'raysubmit_1', node_ip: '10.0.0.3', rank: 3, location, holder }, { name: 'eval' });
  const found = (filter: string) => shown([cluster()], all, filter).filter((line) => line.includes(' task '));

  it.each(['t0', 'TRAIN', 'raysubmit', '10.0.0.3', 'rank 3', 'loss.py:9', 'ada', '  train   ada '])(
    'fits %j',
    (filter) => {
      expect(found(filter)).toEqual(['  task t0']);
    },
  );

  it('fits all if it is empty', () => {
    for (const filter of ['', '  ', 'paused']) expect(found(filter)).toHaveLength(2);
  });

  it('needs all of its words', () => {
    expect(shown([cluster()], all, 'train eval')).toEqual([
      'message No task fits the filter "train eval". 2 others are paused.',
    ]);
    expect(shown([cluster()], all.slice(0, 1), 'nothing')).toEqual([
      'message No task fits the filter "nothing". 1 other is paused.',
    ]);
  });

  // "rank" and "3" looked for apart would fit an address with a 3.
  it.each([{ rank: 13 }, { rank: 1, node_ip: '10.0.0.3' }])('for rank 3 does not fit %j', (change) => {
    expect(shown([cluster()], [task(change)], 'rank 3')).not.toContain('  task t');
  });

  it.each([{ group: 'Trainer' }, { train_run: 'Trainer' }])('fits the label of a row: %j', (change) => {
    expect(shown([cluster()], [task(change)], 'trainer')).toContain('  task t');
  });

  it('does not hide trouble', () => {
    expect(shown([cluster({ trouble: 'no answer' })], [task()], 'nothing')).toEqual([
      'message No task fits the filter "nothing". 1 other is paused.',
      'trouble no answer',
    ]);
    const clusters = [cluster({ trouble: 'no answer' }), cluster({ name: 'b' })];
    expect(shown(clusters, tasks({}, { cluster: 'b' }), 'nothing')).toEqual([
      'message No task fits the filter "nothing". 2 others are paused.',
      'cluster a',
      '  trouble no answer',
    ]);
  });
});
