// The rows of the side bar.

import { describe, expect, it } from 'vitest';

import type { Breakpoint, Cluster } from '../src/relay/breakpoint.js';
import { descriptionOf, labelOf, locationOf, rowsOf, type Row } from '../src/view/rows.js';
import { cluster, NOW, shown, SINCE, task, tasks } from './support/rows.js';

const allRows = (rows: Row[]): Row[] =>
  rows.flatMap((row) => ('children' in row ? [row, ...allRows(row.children)] : [row]));

const HOSTILE = 'a\u202eb\u2066c\n\r\u2028d\u0000e\u001b[31mf\u200bg';
const UNSAFE = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069]/;

describe('rows', () => {
  it('are jobs, groups in them, and tasks by rank', () => {
    const job = { submission_id: 'raysubmit_1', job_id: '01', group: 'Trainer' };
    const all = tasks({ ...job, rank: 10 }, { ...job, rank: 2 }, { ...job }, { ...job, rank: 0 }, { job_id: '02' });
    expect(shown([cluster()], all)).toEqual([
      'job raysubmit_1',
      '  group Trainer',
      '    task t3',
      '    task t1',
      '    task t0',
      '    task t2',
      'job job 02',
      '  task t4',
    ]);
  });

  it('have tasks without a rank in the order in which they stopped', () => {
    const all = tasks({ first_seen: 3 }, { first_seen: 1 }, { first_seen: 2 });
    expect(shown([cluster()], all).slice(2)).toEqual(['    task t1', '    task t2', '    task t0']);
  });

  it.each([
    [
      'its submission id',
      { submission_id: 'raysubmit_1', train_run: 'run', job_id: '01' },
      'raysubmit_1',
      'raysubmit_1',
    ],
    ['its Train run', { train_run: 'run', job_id: '01' }, 'run', '01'],
    ['its job id', { job_id: '01' }, 'job 01', '01'],
    ['nothing', {}, 'no job known', undefined],
  ])('name a job by %s', (_, change, label, job) => {
    expect(rowsOf([cluster()], [task(change)], '')).toMatchObject([{ kind: 'job', label, job, cluster: 'a' }]);
  });

  it('group tasks of one name, and not across jobs', () => {
    const all = tasks({ job_id: '01' }, { job_id: '02' }, { job_id: '01' }, { job_id: '01', name: 'eval' });
    expect(shown([cluster()], all)).toEqual([
      'job job 01',
      '  group train',
      '    task t0',
      '    task t2',
      '  task t3',
      'job job 02',
      '  task t1',
    ]);
  });

  it('are below clusters if there are several, and leave out those with nothing to show', () => {
    const clusters = ['a', 'b', 'c'].map((name) => cluster({ name }));
    const all = tasks({ cluster: 'b' }, { cluster: 'a' });
    const job = '  job no job known';
    expect(shown(clusters, all)).toEqual(['cluster a', job, '    task t1', 'cluster b', job, '    task t0']);
  });

  it('show trouble first, also of a cluster without tasks', () => {
    const clusters = [cluster({ trouble: 'no answer', pending: true }), cluster({ name: 'b', pending: true })];
    const trouble = ['cluster a', '  trouble no answer'];
    expect(shown(clusters, [])).toEqual([...trouble, 'cluster b', '  message The Ray head is starting.']);
    expect(shown(clusters.slice(0, 1), [task()])[0]).toBe('trouble no answer');
  });

  it('are none if nothing is paused', () => {
    expect(rowsOf([], [], '')).toEqual([]);
    expect(rowsOf([cluster()], [], 'x')).toEqual([]);
  });

  it('have one line without invisible characters', () => {
    const change = { job_id: HOSTILE, group: HOSTILE, name: HOSTILE };
    const all = tasks(change, change);
    for (const line of shown([cluster({ trouble: HOSTILE })], all)) expect(line).not.toMatch(UNSAFE);
    expect(shown([cluster()], all, HOSTILE)[0]).not.toMatch(UNSAFE);
    const texts = [HOSTILE, 'x'.repeat(4096)].flatMap((text) => {
      const holder = { session: 1, since: SINCE, subject: text };
      const location = { file: text, line: 1 };
      const one = task({ name: text, node_ip: text, exception: text, location });
      return [
        labelOf(one),
        locationOf(one),
        descriptionOf(one, null, NOW),
        descriptionOf({ ...one, holder: { ...holder, client: '', parked_until: null } }, null, NOW),
      ];
    });
    for (const text of texts) {
      expect(text).not.toMatch(UNSAFE);
      expect(text.length).toBeLessThanOrEqual(200);
    }
  });

  // For 5 s after a cluster was discovered the list has none of that name.
  it('show a task whose cluster is not listed', () => {
    const rows = ['cluster new', '  job no job known', '    task t'];
    expect(shown([cluster()], [task({ cluster: 'new' })])).toEqual(rows);
    expect(shown([], [task({ cluster: 'new' })])).toEqual(rows.slice(1).map((line) => line.slice(2)));
  });

  // VS Code shows nothing if two rows have one id.
  it.each<[string, Cluster[], Breakpoint[]]>([
    ['a job is called "trouble"', [cluster({ trouble: 'no answer' })], [task({ job_id: 'trouble' })]],
    ['a cluster is called as a job', [cluster(), cluster({ name: 'a/b' })], tasks({ job_id: 'b' }, { cluster: 'a/b' })],
    [
      'names have what separates the parts of a key',
      [cluster()],
      tasks({ job_id: 'x","y' }, { job_id: 'x' }, { job_id: 'y' }),
    ],
    [
      'a job and a group have names that are joined alike',
      [cluster()],
      tasks(...['x/y', 'x/y', 'x', 'x'].map((job_id, at) => ({ job_id, group: at < 2 ? 'z' : 'y/z' }))),
    ],
    [
      'a cluster is called "filter"',
      [cluster({ name: 'filter', trouble: 'no answer' })],
      [task({ cluster: 'filter' })],
    ],
    ['two clusters have one name', [cluster(), cluster()], [task()]],
  ])('have a key each if %s', (_, clusters, all) => {
    for (const filter of ['', 'nothing fits this']) {
      const keys = allRows(rowsOf(clusters, all, filter)).map((row) => row.key);
      expect(keys.length).toBeGreaterThan(0);
      expect(new Set(keys).size).toBe(keys.length);
      for (const key of keys) expect(JSON.parse(key)).toBeInstanceOf(Array);
    }
  });
});
