// Tasks that run or have failed, as the relay lists them on request (docs/reference.md, "A running task").

import * as v from 'valibot';

import { nullish, readable, Text } from './schema.js';

/** Longest list, in rows; the relay's largest page. */
export const MAX_TASKS = 10_000;

const Id = v.pipe(v.string(), v.regex(/^[0-9a-z]{1,64}$/));

const common = {
  cluster: Text,
  name: Text,
  rank: nullish(v.number()),
  job_id: nullish(Text),
  submission_id: nullish(Text),
  node_ip: v.fallback(nullish(Text), null),
};

export const FailedTask = v.object({
  ...common,
  /** The id for a snapshot. */
  id: Id,
  exception: v.fallback(Text, ''),
  location: v.fallback(nullish(v.object({ file: Text, line: v.number() })), null),
  /** Seconds since 1970. */
  failed: v.number(),
});
export type FailedTask = v.InferOutput<typeof FailedTask>;

export const FailedTasks = v.object({
  tasks: readable(FailedTask, MAX_TASKS),
  /** Whether the relay has the failed tasks kept. */
  kept: v.fallback(v.boolean(), true),
});

export const RunningTask = v.object({
  ...common,
  task_id: nullish(Id),
  worker_id: Id,
  pid: nullish(v.number()),
  /** Seconds since 1970. */
  started: nullish(v.number()),
  /** The id of the breakpoint at which its worker is paused. */
  breakpoint: nullish(Text),
});
export type RunningTask = v.InferOutput<typeof RunningTask>;

export const RunningTasks = v.object({ tasks: readable(RunningTask, MAX_TASKS) });
