// The rows of the side bar: cluster, job, group, task. Pure.

import { isParkedFor, type Breakpoint, type Cluster } from '../relay/breakpoint.js';
import { briefSpan, fileName, oneLine } from '../text.js';

/** Longest text of a row. */
const MAX_TEXT = 200;

export type Row = ClusterRow | JobRow | GroupRow | TaskRow | ResumeRow | MessageRow;

export interface ClusterRow {
  kind: 'cluster';
  key: string;
  cluster: Cluster;
  children: Row[];
}

/** A row above several tasks. */
interface TasksRow {
  key: string;
  label: string;
  /** By which the relay finds the job, if Ray reports it. */
  job: string | undefined;
  cluster: string;
  tasks: Breakpoint[];
  children: Row[];
}

export interface JobRow extends TasksRow {
  kind: 'job';
}

export interface GroupRow extends TasksRow {
  kind: 'group';
}

export interface TaskRow {
  kind: 'task';
  key: string;
  task: Breakpoint;
}

/** The tasks that are parked for the user, to be resumed with one click. */
export interface ResumeRow {
  kind: 'resume';
  key: string;
  tasks: Breakpoint[];
}

/** A sentence in place of rows. */
export interface MessageRow {
  kind: 'message';
  key: string;
  text: string;
  isTrouble: boolean;
}

/** The rows of one relay, of those tasks that `filter` fits. One cluster alone is no row of its own. */
export function rowsOf(clusters: readonly Cluster[], tasks: Iterable<Breakpoint>, filter: string): Row[] {
  const fits = filterOf(filter);
  const all = [...tasks];
  const shown = all.filter(fits);
  const byCluster = grouped(shown, (task) => task.cluster);
  const named = new Map(clusters.map((cluster) => [cluster.name, cluster]));
  // A task can be listed before its cluster is.
  for (const name of byCluster.keys()) if (!named.has(name)) named.set(name, clusterCalled(name));
  const rows = [...named.values()].map((cluster) => clusterRow(cluster, byCluster.get(cluster.name) ?? []));
  const [first] = rows;
  const visible =
    rows.length === 1 && first !== undefined ? first.children : rows.filter((row) => row.children.length > 0);
  if (all.length === 0 || shown.length > 0) return visible;
  const count = all.length === 1 ? '1 other is' : `${all.length} others are`;
  return [message(['filter'], `No task fits the filter "${filter}". ${count} paused.`, false), ...visible];
}

function clusterCalled(name: string): Cluster {
  return { name, ray_version: null, isRead: false, trouble: null, complete: true, pending: false };
}

function clusterRow(cluster: Cluster, tasks: Breakpoint[]): ClusterRow {
  const { name, trouble, pending } = cluster;
  const children: Row[] = jobsOf(name, tasks);
  if (trouble !== null) children.unshift(message(['trouble', name], trouble, true));
  else if (pending) children.unshift(message(['pending', name], 'The Ray head is starting.', false));
  return { kind: 'cluster', key: keyOf('cluster', name), cluster, children };
}

/** The identity of a row: unlike for any two rows, whatever names their jobs have. */
function keyOf(...parts: string[]): string {
  return JSON.stringify(parts);
}

/** A sentence; `key` is its own among those of the relay. */
export function message(key: string[], text: string, isTrouble: boolean): MessageRow {
  return { kind: 'message', key: keyOf('message', ...key), text: oneLine(text, 1000), isTrouble };
}

/** The job of a task. `id`: by which the relay finds it, if Ray reports it. */
export interface Job {
  id: string | undefined;
  /** That of no other job. */
  key: string;
  label: string;
}

export function jobOf({ cluster, submission_id, job_id, train_run }: Breakpoint): Job {
  const id = submission_id ?? job_id ?? undefined;
  const label = submission_id ?? train_run ?? (id === undefined ? 'no job known' : `job ${id}`);
  return { id, key: keyOf('job', cluster, id ?? ''), label: oneLine(label, MAX_TEXT) };
}

function jobsOf(cluster: string, tasks: Breakpoint[]): JobRow[] {
  return [...grouped(tasks, (task) => jobOf(task).key).values()].flatMap(([first, ...more]) => {
    if (first === undefined) return [];
    const job = jobOf(first);
    const tasks = [first, ...more];
    const children = groupsOf(cluster, job, tasks);
    return [{ kind: 'job', key: job.key, label: job.label, job: job.id, cluster, tasks, children }];
  });
}

function groupsOf(cluster: string, job: Job, tasks: Breakpoint[]): Row[] {
  const groups = grouped(tasks, (task) => task.group ?? task.name);
  return [...groups].flatMap(([group, tasks]): Row[] => {
    tasks.sort((a, b) => (a.rank ?? Infinity) - (b.rank ?? Infinity) || a.first_seen - b.first_seen);
    const children = tasks.map((task): TaskRow => ({ kind: 'task', key: keyOf('task', task.id), task }));
    if (children.length < 2) return children;
    const key = keyOf('group', job.key, group);
    return [{ kind: 'group', key, label: oneLine(group, MAX_TEXT), job: job.id, cluster, tasks, children }];
  });
}

/** `all` by their keys, in the order in which these first come. */
export function grouped<T>(all: readonly T[], key: (one: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const one of all) {
    const name = key(one);
    const group = groups.get(name);
    if (group === undefined) groups.set(name, [one]);
    else group.push(one);
  }
  return groups;
}

/** Whether a task has all words of `filter`; `rank 3` is that rank alone. */
function filterOf(filter: string): (task: Breakpoint) => boolean {
  const ranks: number[] = [];
  const rest = filter.toLowerCase().replace(/\brank +(\d+)\b/g, (_, rank: string) => {
    ranks.push(Number(rank));
    return ' ';
  });
  const words = rest.split(/\s+/).filter(Boolean);
  return (task) => {
    const whole = searched(task);
    return ranks.every((rank) => task.rank === rank) && words.every((word) => whole.includes(word));
  };
}

function searched(task: Breakpoint): string {
  const texts = [
    task.id,
    task.name,
    task.group,
    task.submission_id,
    task.job_id,
    task.train_run,
    task.node_ip,
    task.rank === null ? null : `rank ${task.rank}`,
    locationOf(task),
    task.holder?.subject,
    task.state,
  ];
  return texts.filter(Boolean).join(' ').toLowerCase();
}

/** `loss.py:9`, or empty. */
export function locationOf(task: Breakpoint): string {
  return task.location === null ? '' : oneLine(`${fileName(task.location.file)}:${task.location.line}`, MAX_TEXT);
}

/** The name of a task's row: its rank, where there is one. */
export function labelOf(task: Breakpoint): string {
  return task.rank === null ? oneLine(task.name, MAX_TEXT) : `rank ${task.rank}`;
}

/** The text after the name of a task: `file:line`, state in words, node, GPUs. `me` is the user's own name. */
export function descriptionOf(task: Breakpoint, me: string | null, now: number): string {
  const gpus = task.resources?.GPU;
  const parts = [
    locationOf(task),
    stateOf(task, me, now),
    task.node_ip,
    gpus === undefined || gpus === 0 ? '' : `${gpus} GPU${gpus === 1 ? '' : 's'}`,
  ];
  return oneLine(parts.filter(Boolean).join(' · '), MAX_TEXT);
}

/** The state of a task in words, at `now` in milliseconds. `me` is the user's own name; `null`: there are no names. */
export function stateOf(task: Breakpoint, me: string | null, now: number): string {
  const ago = (since: number) => briefSpan(now / 1000 - since);
  const { holder } = task;
  const ended = task.task_ended === null ? '' : ', its task has ended';
  if (holder !== null) {
    const isMine = me !== null && holder.subject === me;
    const who = isMine ? 'you' : (holder.subject ?? (holder.client || 'somebody'));
    if (holder.parked_until === null) return `held by ${who} for ${ago(holder.since)}${ended}`;
    const until = `until ${clock(holder.parked_until * 1000, now)}`;
    return me === null && holder.subject === null ? `parked ${until}${ended}` : `parked for ${who} ${until}${ended}`;
  }
  const since = ago(task.first_seen);
  if (task.state === 'unreachable') return `unreachable, paused for ${since}`;
  if (task.kind === 'pdb') return `paused for ${since}, in Ray's legacy debugger`;
  if (task.exception !== null) return `${oneLine(task.exception, 60)}, ${since} ago`;
  return `paused for ${since}${ended}`;
}

function clock(at: number, now: number): string {
  const time = new Date(at).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' });
  const isToday = new Date(at).toDateString() === new Date(now).toDateString();
  return isToday ? time : `${new Date(at).toLocaleDateString([], { weekday: 'short' })} ${time}`;
}

/** How many tasks there are in which state: `3 paused, 5 parked for you`. */
export function countOf(tasks: readonly Breakpoint[], me: string | null): string {
  const mine = tasks.filter((task) => isParkedFor(task, me)).length;
  const held = tasks.filter((task) => task.holder !== null).length - mine;
  const free = tasks.length - held - mine;
  const parts = [
    free > 0 || tasks.length === 0 ? `${free} paused` : '',
    mine > 0 ? `${mine} parked for you` : '',
    held > 0 ? `${held} held` : '',
  ];
  return parts.filter(Boolean).join(', ');
}
