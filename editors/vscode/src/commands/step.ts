// Continues and steps all tasks of a group, in the debug sessions that this window has for them.

import { within } from '../deadline.js';
import type { DebugSessions } from '../dap/sessions.js';
import type { Relay } from '../relay/relay.js';
import type { GroupRow, JobRow } from '../view/rows.js';
import { showError } from '../notify.js';

/** How long a session may take to accept that its task continues. */
const RESUME_TIMEOUT_MS = 30_000;

/** A request of DAP that resumes a thread, and what did not happen if it fails. */
const WORDS = { continue: 'continue', next: 'step' };

export async function resumeAll(
  sessions: DebugSessions,
  relay: Relay,
  row: JobRow | GroupRow,
  request: keyof typeof WORDS,
): Promise<void> {
  const stopped = sessions.stoppedIn(relay, row.tasks);
  const results = await Promise.allSettled(
    stopped.map(({ session, threadId }) => {
      const late = new Error('no answer yet; see the Debug Console');
      return within(session.customRequest(request, { threadId }), RESUME_TIMEOUT_MS, late);
    }),
  );
  const failures = results.filter((result) => result.status === 'rejected');
  const [first] = failures;
  if (first === undefined) return;
  const why = first.reason instanceof Error ? first.reason.message : String(first.reason);
  void showError(`${failures.length} of ${results.length} sessions did not ${WORDS[request]}: ${why}`);
}
