// What has changed in a list that its user should know. Pure.

import { isFree, isParkedFor, isWhole, type Breakpoint, type List } from '../relay/breakpoint.js';
import { grouped, labelOf, locationOf } from './rows.js';

/** A change that is announced. */
export interface Change {
  text: string;
  /** What is paused now; empty: nothing can be done. */
  tasks: Breakpoint[];
}

/** Compares the lists of one relay, each with the one before. */
export class Changes {
  /** Stops that were in the last list. Those of the first list are no news: the side bar shows them. */
  private known: Set<string> | undefined;
  /** Stops that were new in the last list: an editor that attaches to all may take them in a moment. */
  private fresh = new Set<string>();
  private parked: Breakpoint[] = [];

  /**
   * What has changed since the last call. `released`: ids of tasks that the user has released.
   * A task is the user's if they submitted its job through the relay.
   */
  since(list: List, me: string | null, released: ReadonlySet<string>): Change[] {
    const { known, fresh, parked } = this;
    const { breakpoints: tasks } = list;
    this.known = new Set(tasks.map(stopOf));
    this.fresh = new Set(known === undefined ? [] : [...this.known].filter((stop) => !known.has(stop)));
    const whole = new Set(list.clusters.filter(isWhole).map((cluster) => cluster.name));
    const ids = new Set(tasks.map((task) => task.id));
    const absent = parked.filter((task) => !ids.has(task.id));
    this.parked = [
      ...tasks.filter((task) => isParkedFor(task, me)),
      ...absent.filter((task) => !whole.has(task.cluster)),
    ];
    const gone = absent.filter((task) => whole.has(task.cluster) && !released.has(task.id));
    const isMine = (task: Breakpoint) => me !== null && task.submitter === me;
    const paused = tasks.filter((task) => fresh.has(stopOf(task)) && isFree(task) && isMine(task));
    return [...pausedText(paused), ...goneText(gone)];
  }
}

const stopOf = (task: Breakpoint) => `${task.id} ${task.stop}`;

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
      ? `${labelOf(first)}${ofJob(tasks)} was parked for you, and is no longer paused.`
      : `${tasks.length} tasks${ofJob(tasks)} were parked for you, and are no longer paused.`;
  return [{ text, tasks: [] }];
}

/** ` of the job NAME`, if all are of one that has a name. */
function ofJob(tasks: Breakpoint[]): string {
  const jobs = [...grouped(tasks, (task) => task.submission_id ?? task.job_id ?? '').keys()];
  return jobs.length === 1 && jobs[0] !== '' ? ` of ${jobs[0]}` : '';
}
