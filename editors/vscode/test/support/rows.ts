// Paused tasks and their rows in the side bar, for tests.

import * as v from 'valibot';

import { Breakpoint, Cluster } from '../../src/relay/breakpoint.js';
import { rowsOf, type Row } from '../../src/view/rows.js';

/** The time of the tests, in milliseconds since 1970. */
export const NOW = 1_800_000_000_000;

/** When tasks have stopped and sessions have begun, in seconds since 1970. */
export const SINCE = NOW / 1000 - 134;

const REQUIRED = { kind: 'debugpy', state: 'paused', cluster: 'a', name: 'train', title: 'train', first_seen: SINCE };

export const task = (change: object = {}) => v.parse(Breakpoint, { ...REQUIRED, id: 't', ...change });
export const cluster = (change: object = {}) => v.parse(Cluster, { name: 'a', ...change });
export const tasks = (...changes: object[]) => changes.map((change, at) => task({ id: `t${at}`, ...change }));

/** Rows as text, children indented. */
function shape(rows: Row[]): string[] {
  return rows.flatMap((row) => {
    if (row.kind === 'task') return [`task ${row.task.id}`];
    if (row.kind === 'message') return [`${row.isTrouble ? 'trouble' : 'message'} ${row.text}`];
    if (row.kind === 'resume') return [`resume ${row.tasks.length}`];
    const name = row.kind === 'cluster' ? row.cluster.name : row.label;
    return [`${row.kind} ${name}`, ...shape(row.children).map((line) => `  ${line}`)];
  });
}

/** The rows of a relay, as text. */
export const shown = (clusters: Cluster[], all: Breakpoint[], filter = '') => shape(rowsOf(clusters, all, filter));
