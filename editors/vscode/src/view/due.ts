// What a user has to know before it happens. Pure.

import { isParkedFor, type Breakpoint } from '../relay/breakpoint.js';
import { briefSpan } from '../text.js';
import { labelOf } from './rows.js';

/** How long before an end it is announced. */
const BEFORE_SECONDS = 600;

/** A notice about one relay. `keys` are those of what it announces. */
export type Notice =
  { kind: 'park'; keys: string[]; text: string; tasks: Breakpoint[] } | { kind: 'token'; keys: string[]; text: string };

/**
 * What is to be announced of a relay at `now`, in seconds since 1970, but not what `isKnown` by its key. `expires` is the end
 * of the user's credential.
 */
export function noticesDue(
  relay: string,
  tasks: Iterable<Breakpoint>,
  me: string | null,
  expires: number | undefined,
  now: number,
  isKnown: (key: string) => boolean,
): Notice[] {
  const notices: Notice[] = [];
  const ending = [...tasks].filter(
    (task) => isParkedFor(task, me) && isDue(task.holder?.parked_until ?? 0, now) && !isKnown(parkKey(task)),
  );
  const [first] = ending;
  if (first !== undefined) {
    const ends = Math.min(...ending.map((task) => task.holder?.parked_until ?? Infinity));
    const what = ending.length === 1 ? `Your park of ${labelOf(first)}` : `Your park of ${ending.length} tasks`;
    const text = `${what} ends in ${briefSpan(ends - now)}.`;
    notices.push({ kind: 'park', keys: ending.map(parkKey), text, tasks: ending });
  }
  const tokenKey = `token/${expires}`;
  if (expires !== undefined && isDue(expires, now) && !isKnown(tokenKey)) {
    const text = `Your token for ${relay} expires in ${briefSpan(expires - now)}. Sessions end with it.`;
    notices.push({ kind: 'token', keys: [tokenKey], text });
  }
  return notices;
}

const parkKey = (task: Breakpoint) => `park/${task.id}/${task.holder?.parked_until}`;

const isDue = (at: number, now: number) => at > now && at - now < BEFORE_SECONDS;
