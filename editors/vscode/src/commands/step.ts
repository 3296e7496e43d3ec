// Continues and steps all tasks of a group, in the debug sessions that this window has for them.

import type { DebugSessions } from '../dap/sessions.js';
import type { Relay } from '../relay/relay.js';
import type { GroupRow, JobRow } from '../view/rows.js';
import { showError } from './notify.js';

/** A request of DAP that resumes a thread. */
export type Resumption = 'continue' | 'next';

export async function resumeAll(
  sessions: DebugSessions,
  relay: Relay,
  row: JobRow | GroupRow,
  request: Resumption,
): Promise<void> {
  const stopped = sessions.stoppedIn(relay, row.tasks);
  const results = await Promise.allSettled(
    stopped.map(({ session, threadId }) => session.customRequest(request, { threadId })),
  );
  const failures = results.filter((result) => result.status === 'rejected');
  const [first] = failures;
  if (first === undefined) return;
  const why = first.reason instanceof Error ? first.reason.message : String(first.reason);
  void showError(`${failures.length} of ${results.length} tasks did not continue: ${why}`);
}
