// A paused task as the relay lists it (docs/reference.md, "A breakpoint"), and the list.

import * as v from 'valibot';

import { nullish, readable, Text } from './schema.js';

/** Longest list, in rows; the relay's largest page. */
export const MAX_ROWS = 10_000;

/** Most clusters of one relay. */
const MAX_CLUSTERS = 1000;

const Holder = v.object({
  session: v.number(),
  subject: nullish(Text),
  client: v.fallback(Text, ''),
  /** Seconds since 1970. */
  since: v.number(),
  parked_until: nullish(v.number()),
});

const Location = v.object({ file: Text, line: v.number(), function: v.fallback(Text, '') });

export const Breakpoint = v.object({
  /** Goes into links and attach arguments. */
  id: v.pipe(v.string(), v.regex(/^[0-9a-z]{1,32}$/)),
  kind: Text,
  state: Text,
  holder: nullish(Holder),
  cluster: Text,
  node_ip: v.fallback(Text, ''),
  pid: nullish(v.number()),
  job_id: nullish(Text),
  submission_id: nullish(Text),
  train_run: nullish(Text),
  /** Who submitted its job through the relay. */
  submitter: nullish(Text),
  name: Text,
  title: Text,
  group: nullish(Text),
  rank: nullish(v.number()),
  world_size: nullish(v.number()),
  resources: v.fallback(nullish(v.record(v.string(), v.number())), null),
  reason: v.fallback(Text, 'unknown'),
  location: v.fallback(nullish(Location), null),
  exception: nullish(Text),
  /** Seconds since 1970. */
  first_seen: v.number(),
  why: nullish(Text),
  task_ended: nullish(v.number()),
});
export type Breakpoint = v.InferOutput<typeof Breakpoint>;

export const Cluster = v.pipe(
  v.object({
    name: Text,
    ray_version: nullish(Text),
    /** `null`: its list has not been read yet. */
    snapshot_age_seconds: nullish(v.number()),
    trouble: nullish(Text),
    complete: v.fallback(v.boolean(), true),
    pending: v.fallback(v.boolean(), false),
  }),
  // The age alone changes all the time.
  v.transform(({ snapshot_age_seconds: age, ...rest }) => ({ ...rest, isRead: age !== null })),
);
export type Cluster = v.InferOutput<typeof Cluster>;

export const List = v.object({
  breakpoints: readable(Breakpoint, MAX_ROWS),
  clusters: readable(Cluster, MAX_CLUSTERS),
});
export type List = v.InferOutput<typeof List>;

/** Whether the list of `cluster` is complete and current. */
export function isWhole(cluster: Cluster): boolean {
  return cluster.isRead && cluster.complete && !cluster.pending && cluster.trouble === null;
}

/** Whether `row` is parked for the user called `me`; `null`: the relay knows nobody's name. */
export function isParkedFor(row: Breakpoint, me: string | null): boolean {
  return row.holder !== null && row.holder.parked_until !== null && row.holder.subject === me;
}

/** Whether a debugger can be attached: `unreachable` is tried again when it is named. */
export function isFree(row: Breakpoint): boolean {
  return ['paused', 'unreachable', 'unlisted'].includes(row.state) && row.kind === 'debugpy';
}
