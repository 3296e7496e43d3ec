// Whether the task of a session has stopped, by the messages of the session. Pure.

import * as v from 'valibot';

/** Requests after which the task runs. */
const Resumption = v.object({
  type: v.literal('request'),
  command: v.picklist(['continue', 'next', 'stepIn', 'stepOut', 'stepBack', 'reverseContinue', 'goto']),
});

const Stopped = v.object({
  type: v.literal('event'),
  event: v.literal('stopped'),
  body: v.object({ threadId: v.number() }),
});

const Continued = v.object({ type: v.literal('event'), event: v.literal('continued') });

export class StoppedThread {
  /** `undefined`: the task runs, or has not stopped yet. */
  id: number | undefined;

  /** `message` of the editor. */
  toRelay(message: unknown): void {
    if (v.is(Resumption, message)) this.id = undefined;
  }

  /** `message` of the relay. */
  fromRelay(message: unknown): void {
    if (v.is(Stopped, message)) this.id = message.body.threadId;
    else if (v.is(Continued, message)) this.id = undefined;
  }
}
