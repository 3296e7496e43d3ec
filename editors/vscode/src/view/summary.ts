// What a user should know of all tasks at a glance. Pure.

import type { Breakpoint } from '../relay/breakpoint.js';
import { grouped, jobOf, labelOf, locationOf } from './rows.js';

/** `7 of 8 paused · rank 3 at loss.py:9` for the largest group of ranks, of the tasks of each relay. */
export function statusOf(relays: readonly Breakpoint[][]): string {
  const tasks = relays.flat();
  const group = largest(relays.flatMap((tasks) => [...grouped(tasks, groupOf).values()]));
  const known = Math.max(0, ...group.map((task) => task.world_size ?? 0));
  const isRanks = known > 1 && group.length > tasks.length / 2;
  const paused = isRanks && known > group.length ? `${group.length} of ${known} paused` : `${tasks.length} paused`;
  const odd = oddOne(group);
  return odd === undefined ? paused : `${paused} · ${labelOf(odd)} at ${locationOf(odd)}`;
}

const groupOf = (task: Breakpoint) => JSON.stringify([jobOf(task).key, task.group ?? task.name]);

function largest(groups: Breakpoint[][]): Breakpoint[] {
  return groups.reduce((largest, one) => (one.length > largest.length ? one : largest), []);
}

/** The only task that has stopped at another line than all others of a group of three or more. */
function oddOne(group: Breakpoint[]): Breakpoint | undefined {
  const places = grouped(
    group.filter((task) => locationOf(task) !== ''),
    locationOf,
  );
  const [first, second, ...more] = [...places.values()].sort((a, b) => a.length - b.length);
  const isOdd = first?.length === 1 && second !== undefined && second.length > 1 && more.length === 0;
  return isOdd ? first[0] : undefined;
}
