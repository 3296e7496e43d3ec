// What a user has to know before it happens. Pure.

import { isParkedFor, type Breakpoint } from '../relay/breakpoint.js';
import { briefSpan } from '../text.js';
import { labelOf } from './rows.js';

/** How long before an end it is announced. */
const BEFORE_SECONDS = 600;

/** A notice about one relay. `key` is the same for what is announced once. */
export type Notice =
  { kind: 'park'; key: string; text: string; tasks: Breakpoint[] } | { kind: 'token'; key: string; text: string };

/** What is to be announced of a relay at `now`, in seconds since 1970; `expires` is the end of the user's credential. */
export function noticesDue(
  relay: string,
  tasks: Iterable<Breakpoint>,
  me: string | null,
  expires: number | undefined,
  now: number,
): Notice[] {
  const notices: Notice[] = [];
  const ending = [...tasks].filter((task) => isParkedFor(task, me) && isDue(task.holder?.parked_until ?? 0, now));
  const [first] = ending;
  if (first !== undefined) {
    const ends = Math.min(...ending.map((task) => task.holder?.parked_until ?? Infinity));
    const what = ending.length === 1 ? `Your park of ${labelOf(first)}` : `Your park of ${ending.length} tasks`;
    // To the minute: the parks of one moment are one notice.
    const key = `park/${ending
      .map((task) => task.id)
      .sort()
      .join()}/${Math.round(ends / 60)}`;
    notices.push({ kind: 'park', key, text: `${what} ends in ${briefSpan(ends - now)}.`, tasks: ending });
  }
  if (expires !== undefined && isDue(expires, now)) {
    const text = `Your token for ${relay} expires in ${briefSpan(expires - now)}. Sessions end with it.`;
    notices.push({ kind: 'token', key: `token/${expires}`, text });
  }
  return notices;
}

const isDue = (at: number, now: number) => at > now && at - now < BEFORE_SECONDS;
