// Actions on one or several paused tasks: resume and park.

import { askToConfirm, field } from './dialog.js';
import { json } from './relay.js';
import { isOwn, title } from './stop.js';
import { make, showMessage } from './text.js';

const MAX_IDS_PER_REQUEST = 500;
/** Parallel park requests: the relay accepts four for each user. */
const CONCURRENT_PARKS = 2;
/** The park times. The empty value is the relay's default, the time for a lost session. */
const PARK_TIMES = { '': 'as long as a lost session', '1h': '1 hour', '4h': '4 hours', '8h': '8 hours', '16h': '16 hours, the night', '64h': '64 hours, the weekend' };

const tasks = (rows) => (rows.length === 1 ? title(rows[0]) : `${rows.length} tasks`);

/** The rows that no other user holds. */
function available(rows, me) {
  return rows.filter((row) => !row.holder || (row.holder.parked_until && (isOwn(row, me.subject) || me.scopes.has('admin'))));
}

/** A sentence about the rows in `failed`. */
function failures(failed) {
  if (failed.length === 0) return '';
  const [[row, reason]] = failed;
  const more = failed.length > 1 ? `, and ${failed.length - 1} more` : '';
  return ` Not ${title(row)}: ${reason}${more}.`;
}

/** Asks for confirmation, and returns the available rows, or null. */
async function confirmTasks(rows, me, { question, yes, none, control }) {
  const selected = available(rows, me);
  if (selected.length === 0) return showMessage(none);
  const others = rows.length - selected.length;
  const note = others > 0 ? ` ${others} with a session stay as they are.` : '';
  return (await askToConfirm(`${question(tasks(selected))}${note}`, yes, control)) ? selected : null;
}

/** Resumes `rows` without attaching to them. */
export async function resumeTasks(rows, me) {
  const selected = await confirmTasks(rows, me, { question: (what) => `Let ${what} run on, without attaching?`, yes: 'Continue', none: 'A session has it: end that first.' });
  if (!selected) return;
  showMessage(`${tasks(selected)}: letting run on …`);
  const byId = new Map(selected.map((row) => [row.id, row]));
  const failed = [];
  for (let start = 0; start < selected.length; start += MAX_IDS_PER_REQUEST) {
    const ids = selected.slice(start, start + MAX_IDS_PER_REQUEST).map((row) => row.id);
    try {
      const { results } = await json('v1/release', { method: 'POST', body: { ids }, timeout: 60_000 });
      for (const { id, released, error } of results) if (!released) failed.push([byId.get(id), error]);
    } catch (error) {
      for (const id of ids) failed.push([byId.get(id), error.message]);
    }
  }
  const done = selected.filter((row) => !failed.some(([failedRow]) => failedRow === row));
  showMessage(`${done.length > 0 ? `${tasks(done)}: ${done.length === 1 ? 'runs' : 'run'} on.` : ''}${failures(failed)}`);
}

/** Parks `rows` for this user, for a time that the user selects. */
export async function park(rows, me) {
  const select = make('select', {}, ...Object.entries(PARK_TIMES).map(([value, word]) => make('option', { value }, word)));
  const control = field('For', select, 'The task stays stopped and holds what it holds. Only you can go on with it until then.');
  const selected = await confirmTasks(rows.filter((row) => row.kind === 'debugpy'), me, { question: (what) => `Park ${what}?`, yes: 'Park', none: 'It cannot be parked: a session has it, or it waits in the legacy debugger.', control });
  if (!selected) return;
  const failed = [];
  const waiting = [...selected];
  async function next() {
    for (let row; (row = waiting.shift()); ) {
      showMessage(`Parking ${selected.length - waiting.length} of ${selected.length} …`);
      try {
        const body = select.value ? { id: row.id, for: select.value } : { id: row.id };
        await json('v1/park', { method: 'POST', body, timeout: 60_000 });
      } catch (error) {
        failed.push([row, error.message]);
      }
    }
  }
  await Promise.all(Array.from({ length: CONCURRENT_PARKS }, next));
  const done = selected.filter((row) => !failed.some(([failedRow]) => failedRow === row));
  showMessage(`${done.length > 0 ? `${tasks(done)}: parked for you.` : ''}${failures(failed)}`);
}
