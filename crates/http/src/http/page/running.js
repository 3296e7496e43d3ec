// The lists of running tasks, and of failed tasks whose stack an agent keeps.

import { OnDemandList } from './asked.js';
import { FailedTask, RunningTask } from './run.js';
import { compareRank, compareText, compareTime, showAge, showName } from './list.js';
import { jobName, locationText, startTime, title } from './stop.js';
import { resourceText, make, write } from './text.js';
import { JobVerdict } from './why.js';

const MAX_ROWS = 10_000;

const byAge = (key) => (a, b) => startTime(a) - startTime(b) || (key(a) < key(b) ? -1 : 1);
const text = (of) => (cell, row) => write(cell, of(row));
const node = (row) => row.node_ip ?? '';

function pill(cell, word, kind) {
  if (!cell.firstElementChild) cell.append(make('span', { class: 'pill' }));
  write(cell.firstElementChild, word);
  cell.firstElementChild.dataset.kind = kind;
}

const NAME = { id: 'name', word: 'Task', show: showName, compare: compareText(title) };
const RANK = { id: 'rank', word: 'Rank', show: text((row) => row.rank ?? ''), compare: compareRank };

/** The list of running tasks; `paused(id)` shows one that is paused at a breakpoint. */
export function runningTasks(me, paused) {
  const status = (row) => (row.breakpoint ? 'paused' : 'running');
  const key = (row) => `${row.cluster} ${row.worker_id} ${row.task_id}`;
  return new OnDemandList('runs', 'run', me, {
    label: 'Running tasks',
    columns: [
      { id: 'status', word: 'Status', show: (cell, row) => pill(cell, status(row), status(row)), compare: compareText(status) },
      NAME,
      RANK,
      { id: 'place', word: 'Node', show: text(node), compare: compareText(node) },
      { id: 'holds', word: 'Holds', show: text(resourceText), compare: compareText(resourceText) },
      { id: 'age', word: 'Runs for', show: showAge, compare: compareTime(startTime) },
    ],
    path: `v1/tasks?limit=${MAX_ROWS}`,
    summary: () => 'As Ray said ',
    none: 'No task runs, as far as Ray says.',
    key,
    first: byAge(key),
    order: (a, b) => compareRank(a, b) || byAge(key)(a, b),
    openPaused: (row) => row.breakpoint && (paused(row.breakpoint), true),
    open: (row) => new RunningTask(row, me),
    openJob: (job, cluster) => new JobVerdict(job, cluster),
    jobOf: jobName,
  });
}

/** The list of failed tasks. */
export function failedTasks(me) {
  const raised = (row) => row.exception;
  const key = (row) => row.id;
  const latest = (a, b) => startTime(b) - startTime(a) || (a.id < b.id ? -1 : 1);
  return new OnDemandList('fails', 'fail', me, {
    label: 'Failed tasks',
    columns: [
      { id: 'status', word: 'Raised', show: (cell, row) => pill(cell, raised(row), 'failed'), compare: compareText(raised) },
      NAME,
      RANK,
      { id: 'place', word: 'Where', show: text(locationText), compare: compareText(locationText) },
      { id: 'node', word: 'Node', show: text(node), compare: compareText(node) },
      { id: 'age', word: 'Ago', show: showAge, compare: compareTime(startTime) },
    ],
    path: 'v1/tasks?state=failed',
    summary: ({ kept }) => (kept === false ? 'This relay keeps nothing of tasks that fail. It was asked ' : 'As agents had it '),
    none: 'Nothing is kept of a task that has failed.',
    key,
    first: latest,
    order: latest,
    open: (row) => new FailedTask(row, me),
  });
}
