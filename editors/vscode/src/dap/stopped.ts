// Which sessions have stopped, by their messages, and which of them to resume. Pure.

import * as v from 'valibot';

const Stopped = v.object({
  type: v.literal('event'),
  event: v.literal('stopped'),
  body: v.object({ threadId: v.number() }),
});

/** The task runs: debugpy says so by an event, or in the answer to a request. */
const Resumed = v.variant('type', [
  v.object({ type: v.literal('event'), event: v.literal('continued') }),
  v.object({
    type: v.literal('response'),
    command: v.picklist(['continue', 'next', 'stepIn', 'stepOut', 'goto']),
    success: v.literal(true),
  }),
]);

const ContinueAnswer = v.object({
  type: v.literal('response'),
  command: v.literal('continue'),
  success: v.literal(true),
});

/** Whether the task has accepted to continue. After a step it stops again by itself. */
export function isContinueAnswer(message: unknown): boolean {
  return v.is(ContinueAnswer, message);
}

/** The thread of a session that has stopped. */
export class StoppedThread {
  /** `undefined`: the task runs, or has not stopped yet. */
  id: number | undefined;

  /** `onChange` is called when a task stops or resumes. */
  constructor(private readonly onChange: () => void) {}

  /** `message` of the relay. */
  fromRelay(message: unknown): void {
    const before = this.id;
    if (v.is(Stopped, message)) this.id = message.body.threadId;
    else if (v.is(Resumed, message)) this.id = undefined;
    if (this.id !== before) this.onChange();
  }
}

/** A session, the session that opened it, and its task; a cluster session has no task of its own. */
export interface OpenSession<Session> {
  session: Session;
  parent: Session | undefined;
  task: string | undefined;
  threadId: number | undefined;
}

/**
 * Returns the sessions that resume the tasks `ids`, as far as they have stopped. A cluster session, which resumes all of
 * its tasks, takes the place of their sessions if all of them are meant: the editor then follows the next stop.
 */
export function sessionsToResume<Session>(
  all: OpenSession<Session>[],
  ids: ReadonlySet<string>,
): OpenSession<Session>[] {
  const isMeant = ({ task }: OpenSession<Session>) => task !== undefined && ids.has(task);
  const stopped = all.filter((one) => one.threadId !== undefined);
  const above = stopped.filter(({ session, task }) => {
    const below = all.filter((one) => one.parent === session);
    return task === undefined && below.length > 0 && below.every(isMeant);
  });
  const isBelow = ({ parent }: OpenSession<Session>) => above.some((one) => one.session === parent);
  return [...above, ...stopped.filter((one) => isMeant(one) && !isBelow(one))];
}
