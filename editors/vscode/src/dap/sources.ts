// Files that a stack names and this machine does not have. The relay is notified, and has the worker's debugger serve them:
// VS Code shows them read-only then, and breakpoints bind in them. As `ray-relay connect` does.

import { access } from 'node:fs/promises';
import { isAbsolute } from 'node:path';

import * as v from 'valibot';

import { within } from '../deadline.js';

/** Pending stack traces, and held ones. Further ones pass as they are. */
const MAX_STACKS = 32;

/** How long a stack trace is held back. */
const REFERENCE_TIMEOUT_MS = 3_000;

/** Time limit for looking which files there are: a folder may be on a network. */
const DISK_TIMEOUT_MS = 1_000;

/** First `seq` of the requests to the relay. VS Code counts from 1, and the relay uses those from 0x5000_0000. */
const FIRST_SEQ = 0x4000_0000;

/** The expression that notifies a relay. */
const MISSING = 'ray-relay missing';

const StackRequest = v.object({ type: v.literal('request'), command: v.literal('stackTrace'), seq: v.number() });

const Response = v.object({
  type: v.literal('response'),
  request_seq: v.number(),
  success: v.boolean(),
  body: v.optional(v.unknown()),
});

const Stack = v.object({
  stackFrames: v.array(
    v.object({
      source: v.optional(
        v.nullable(v.object({ path: v.optional(v.string()), sourceReference: v.optional(v.number()) })),
      ),
    }),
  ),
});

/** Where messages go. */
export interface Ends {
  toRelay(message: object): void;
  toEditor(message: object): void;
}

interface HeldStack {
  request: object;
  answer: object;
  timer: NodeJS.Timeout;
}

export class MissingSources {
  /** Stack traces that VS Code waits for, by their `seq`. */
  private readonly requests = new Map<number, object>();
  /** Answers held back, by the `seq` of the request to the relay. */
  private readonly held = new Map<number, HeldStack>();
  private nextSeq = FIRST_SEQ;

  constructor(
    private readonly ends: Ends,
    private readonly isMissing: (path: string) => Promise<boolean> = isMissingHere,
  ) {}

  /** Notes a message of VS Code. */
  request(message: object): void {
    if (v.is(StackRequest, message) && this.requests.size < MAX_STACKS) this.requests.set(message.seq, message);
  }

  /** Takes a message of the relay: whether it is held back, or meant for this. */
  takes(message: object): boolean {
    if (!v.is(Response, message)) return false;
    const { request_seq: seq, success, body } = message;
    const held = this.held.get(seq);
    if (held !== undefined) {
      this.forget(seq);
      if (success) this.ends.toRelay(held.request);
      else this.ends.toEditor(held.answer);
      return true;
    }
    // A late answer.
    if (seq >= FIRST_SEQ && seq < this.nextSeq) return true;
    const request = this.requests.get(seq);
    this.requests.delete(seq);
    if (request === undefined || !v.is(Stack, body) || this.held.size >= MAX_STACKS) return false;
    const paths = localPaths(body);
    if (paths.length === 0) return false;
    void this.check(paths, request, message);
    return true;
  }

  private async check(paths: string[], request: object, answer: object): Promise<void> {
    const missing = await this.missing(paths);
    if (missing.length === 0) return this.ends.toEditor(answer);
    const seq = this.nextSeq++;
    const timer = setTimeout(() => {
      this.forget(seq);
      this.ends.toEditor(answer);
    }, REFERENCE_TIMEOUT_MS);
    this.held.set(seq, { request, answer, timer });
    const expression = `${MISSING} ${JSON.stringify(missing)}`;
    this.ends.toRelay({ seq, type: 'request', command: 'evaluate', arguments: { expression, context: 'repl' } });
  }

  private async missing(paths: string[]): Promise<string[]> {
    // A file counts as there if that takes too long.
    const late = new Error('the disk does not answer');
    const isAbsent = (path: string) => within(this.isMissing(path), DISK_TIMEOUT_MS, late).catch(() => false);
    const absent = await Promise.all(paths.map(isAbsent));
    return paths.filter((_, at) => absent[at]);
  }

  private forget(seq: number): void {
    clearTimeout(this.held.get(seq)?.timer);
    this.held.delete(seq);
  }

  dispose(): void {
    for (const seq of [...this.held.keys()]) this.forget(seq);
    this.requests.clear();
  }
}

/** Paths for which VS Code looks on its own disk. */
function localPaths(stack: v.InferOutput<typeof Stack>): string[] {
  const paths = stack.stackFrames.flatMap(({ source }) =>
    source?.path !== undefined && !source.sourceReference && isAbsolute(source.path) ? [source.path] : [],
  );
  return [...new Set(paths)];
}

async function isMissingHere(path: string): Promise<boolean> {
  try {
    await access(path);
    return false;
  } catch (error) {
    return error instanceof Error && 'code' in error && error.code === 'ENOENT';
  }
}
