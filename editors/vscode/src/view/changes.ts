// What has changed in a list that its user should know. Pure.

import { isFree, isParkedFor, isWhole, type Breakpoint, type List } from '../relay/breakpoint.js';
import { grouped, jobOf, labelOf, locationOf } from './rows.js';

/** A change that is announced. `tasks` are those that its button attaches to; empty: it has no button. */
export interface Change {
  text: string;
  tasks: Breakpoint[];
}

/**
 * Compares the lists that a relay gives one after another. What is there when the first whole list of a cluster is read
 * is no news: the side bar shows it.
 */
export class Changes {
  private readonly read = new Set<string>();
  /** The tasks that are known, with their clusters. */
  private known = new Map<string, string>();
  /** Tasks that were new in the last list: an editor that attaches to all may take them in a moment. */
  private fresh = new Set<string>();
  private parked = new Map<string, Breakpoint>();
  /** Parked tasks that the last whole list did not have. One list may be that of a relay which has just started. */
  private missing = new Set<string>();

  /**
   * What has changed since the last call. `released`: tasks that the user has released; those that have gone are
   * removed from it. A task is the user's if they submitted its job through the relay.
   */
  since(list: List, me: string | null, released: Set<string>): Change[] {
    const whole = new Set(list.clusters.filter(isWhole).map((cluster) => cluster.name));
    const paused = this.pausedIn(list, me, whole);
    const gone = this.goneFrom(list, me, whole, released);
    return [...pausedText(paused), ...goneText(gone)];
  }

  private pausedIn({ breakpoints: tasks }: List, me: string | null, whole: ReadonlySet<string>): Breakpoint[] {
    const { known, fresh } = this;
    this.fresh = new Set(
      tasks.filter((task) => this.read.has(task.cluster) && !known.has(task.id)).map((task) => task.id),
    );
    const others = [...known].filter(([, cluster]) => !whole.has(cluster));
    this.known = new Map([...others, ...tasks.map((task): [string, string] => [task.id, task.cluster])]);
    for (const cluster of whole) this.read.add(cluster);
    const isMine = (task: Breakpoint) => me !== null && task.submitter === me;
    return tasks.filter((task) => fresh.has(task.id) && isFree(task) && isMine(task));
  }

  private goneFrom(list: List, me: string | null, whole: ReadonlySet<string>, released: Set<string>): Breakpoint[] {
    const ids = new Set(list.breakpoints.map((task) => task.id));
    const absent = [...this.parked.values()].filter((task) => !ids.has(task.id) && !released.has(task.id));
    for (const id of released) if (!ids.has(id)) released.delete(id);
    const isGone = (task: Breakpoint) => whole.has(task.cluster) && this.missing.has(task.id);
    const gone = absent.filter(isGone);
    const waiting = absent.filter((task) => !isGone(task));
    this.missing = new Set(waiting.filter((task) => whole.has(task.cluster)).map((task) => task.id));
    const parked = list.breakpoints.filter((task) => isParkedFor(task, me));
    this.parked = new Map([...parked, ...waiting].map((task) => [task.id, task]));
    return gone;
  }
}

function pausedText(tasks: Breakpoint[]): Change[] {
  const [first] = tasks;
  if (first === undefined) return [];
  const at = locationOf(first) === '' ? '' : ` at ${locationOf(first)}`;
  const text =
    tasks.length === 1 ? `${first.title} is paused${at}.` : `${tasks.length} tasks${ofJob(tasks)} are paused.`;
  return [{ text, tasks }];
}

function goneText(tasks: Breakpoint[]): Change[] {
  const [first] = tasks;
  if (first === undefined) return [];
  const text =
    tasks.length === 1
      ? `${labelOf(first)}${ofJob(tasks)} was parked for you. It is no longer paused: it was released, or has ended.`
      : `${tasks.length} tasks${ofJob(tasks)} were parked for you. They are no longer paused: they were released, or have ended.`;
  return [{ text, tasks: [] }];
}

/** ` of the job NAME`, if all are of one that has a name. */
function ofJob(tasks: Breakpoint[]): string {
  const [job, ...more] = grouped(tasks, (task) => jobOf(task).key).values();
  const first = job?.[0];
  return first === undefined || more.length > 0 || jobOf(first).id === undefined ? '' : ` of ${jobOf(first).label}`;
}
