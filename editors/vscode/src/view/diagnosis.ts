// Why nothing is in the list: the chain from here to a paused task, with the first link that fails. Pure.

import * as v from 'valibot';

import type { Cluster } from '../relay/breakpoint.js';
import { oneLine, wrapped } from '../text.js';
import { nullish } from '../relay/schema.js';

/** The relay's own findings, for administrators. */
export const Findings = v.object({
  findings: v.array(
    v.object({
      severity: v.string(),
      says: v.string(),
      next: nullish(v.string()),
    }),
  ),
});
export type Findings = v.InferOutput<typeof Findings>;

/** One link of the chain. `next` is what to do about it. */
export interface CheckedLink {
  outcome: 'good' | 'bad' | 'note';
  text: string;
  next?: string;
}

const NEXT_TOKEN = 'Use "Change the Token…" in the menu of the relay.';
const NEXT_PERMISSION = 'Ask the operator of the relay for the permissions "list" and "debug", or change your token.';

/** What was found out about a relay, as far as it was reached. */
export interface Probe {
  relay: string;
  /** How it is reached, and why it is not. */
  place: string;
  failure?: { status: number; message: string };
  subject?: string | null;
  scopes?: string[];
  clusters?: readonly Cluster[];
  paused?: number;
  running?: number;
  findings?: Findings;
}

/** The links in their order. */
export function chainOf(probe: Probe): CheckedLink[] {
  const { failure } = probe;
  if (failure !== undefined) {
    if (failure.status === 401 || failure.status === 403) {
      return [
        { outcome: 'good', text: 'The relay answers.' },
        { outcome: 'bad', text: failure.message, next: failure.status === 401 ? NEXT_TOKEN : NEXT_PERMISSION },
      ];
    }
    const next = 'Is the address right, and the network there? In a browser, its page is at /relay/.';
    return [{ outcome: 'bad', text: failure.message, next }];
  }
  return [
    { outcome: 'good', text: 'The relay answers.' },
    linkOfUser(probe),
    ...(probe.clusters ?? []).map(linkOfCluster),
    linkOfTasks(probe),
    ...(probe.findings?.findings ?? []).map(linkOfFinding),
  ];
}

function linkOfUser({ subject, scopes = [] }: Probe): CheckedLink {
  const name = subject ?? 'anonymous';
  if (!scopes.includes('list')) {
    return { outcome: 'bad', text: `You are ${name}, and may not list tasks.`, next: NEXT_PERMISSION };
  }
  if (!scopes.includes('debug') && !scopes.includes('view')) {
    const next = NEXT_PERMISSION;
    return { outcome: 'note', text: `You are ${name}, and may list tasks, but not attach to them.`, next };
  }
  return { outcome: 'good', text: `You are ${name}: ${scopes.join(', ')}.` };
}

function linkOfCluster({ name, ray_version, trouble, pending }: Cluster): CheckedLink {
  if (trouble !== null) return { outcome: 'bad', text: `Cluster ${name}: ${trouble}` };
  if (pending) return { outcome: 'note', text: `Cluster ${name}: the Ray head is starting.` };
  return { outcome: 'good', text: `Cluster ${name} answers${ray_version === null ? '' : `, Ray ${ray_version}`}.` };
}

function linkOfTasks({ paused = 0, running }: Probe): CheckedLink {
  if (paused > 0) return { outcome: 'good', text: `${paused} paused.` };
  const next = 'Put breakpoint() into a task or actor method, and submit the job again.';
  const runs = running === undefined ? '' : ` ${running} ${running === 1 ? 'task runs' : 'tasks run'}.`;
  return { outcome: 'note', text: `Nothing is paused that you may see.${runs}`, next };
}

function linkOfFinding({ severity, says, next }: Findings['findings'][number]): CheckedLink {
  const outcome = severity === 'ok' ? 'good' : severity === 'note' ? 'note' : 'bad';
  return { outcome, text: says, ...(next === null ? {} : { next }) };
}

const MARKS = { good: 'ok   ', bad: 'FAIL ', note: 'note ' };

/** The chain as text. */
export function textOfDiagnosis(probe: Probe): string {
  const lines = chainOf(probe).flatMap(({ outcome, text, next }) => [
    ...wrapped(`${MARKS[outcome]} `, oneLine(text, 500)),
    ...(next === undefined ? [] : wrapped('       → ', oneLine(next, 500))),
  ]);
  return [`${probe.relay}: ${probe.place}`, '', ...lines, ''].join('\n');
}
