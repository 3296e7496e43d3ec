// What is done with one paused task or with many: they run on, or are parked.

import { asked, field } from './dialog.js';
import { json } from './relay.js';
import { isOwn, title } from './stop.js';
import { make, say } from './text.js';

/** Ids in one request. */
const AT_ONCE = 500;
/** Tasks that are parked at a time: the relay has four such places for one person. */
const PARKED_AT_ONCE = 2;
/** For how long; without a word the relay's own time, as for a session that is lost. */
const TIMES = { '': 'as long as a lost session', '1h': '1 hour', '4h': '4 hours', '8h': '8 hours', '16h': '16 hours, the night', '64h': '64 hours, the weekend' };

const tasks = (rows) => (rows.length === 1 ? title(rows[0]) : `${rows.length} tasks`);

/** Those that no other person has. */
function free(rows, me) {
  return rows.filter((row) => !row.holder || (row.holder.parked_until && (isOwn(row, me.subject) || me.scopes.has('admin'))));
}

/** What of it was not done, in a sentence. */
function failures(failed) {
  if (failed.length === 0) return '';
  const [[row, why]] = failed;
  const more = failed.length > 1 ? `, and ${failed.length - 1} more` : '';
  return ` Not ${title(row)}: ${why}${more}.`;
}

/** Asks whether to do it; those of `rows` it is done with. */
async function agreed(rows, me, { question, yes, none, control }) {
  const meant = free(rows, me);
  if (meant.length === 0) return say(none);
  const others = rows.length - meant.length;
  const rest = others > 0 ? ` ${others} with a session stay as they are.` : '';
  return (await asked(`${question(tasks(meant))}${rest}`, yes, control)) ? meant : null;
}

/** Lets `rows` run on, without attaching to them. */
export async function letRun(rows, me) {
  const meant = await agreed(rows, me, { question: (what) => `Let ${what} run on, without attaching?`, yes: 'Continue', none: 'A session has it: end that first.' });
  if (!meant) return;
  say(`${tasks(meant)}: letting run on …`);
  const by = new Map(meant.map((row) => [row.id, row]));
  const failed = [];
  for (let from = 0; from < meant.length; from += AT_ONCE) {
    const ids = meant.slice(from, from + AT_ONCE).map((row) => row.id);
    try {
      const { results } = await json('v1/release', { method: 'POST', body: { ids }, patience: 60_000 });
      for (const { id, released, error } of results) if (!released) failed.push([by.get(id), error]);
    } catch (error) {
      for (const id of ids) failed.push([by.get(id), error.message]);
    }
  }
  const done = meant.filter((row) => !failed.some(([one]) => one === row));
  say(`${done.length > 0 ? `${tasks(done)}: ${done.length === 1 ? 'runs' : 'run'} on.` : ''}${failures(failed)}`);
}

/** Leaves `rows` where they are, kept for this person, for a time that is asked for. */
export async function park(rows, me) {
  const select = make('select', {}, ...Object.entries(TIMES).map(([value, word]) => make('option', { value }, word)));
  const control = field('For', select, 'The task stays stopped and holds what it holds. Only you can go on with it until then.');
  const meant = await agreed(rows.filter((row) => row.kind === 'debugpy'), me, { question: (what) => `Park ${what}?`, yes: 'Park', none: 'It cannot be parked: a session has it, or it waits in the legacy debugger.', control });
  if (!meant) return;
  const failed = [];
  const waiting = [...meant];
  async function next() {
    for (let row; (row = waiting.shift()); ) {
      say(`Parking ${meant.length - waiting.length} of ${meant.length} …`);
      try {
        const body = select.value ? { id: row.id, for: select.value } : { id: row.id };
        await json('v1/park', { method: 'POST', body, patience: 60_000 });
      } catch (error) {
        failed.push([row, error.message]);
      }
    }
  }
  await Promise.all(Array.from({ length: PARKED_AT_ONCE }, next));
  const done = meant.filter((row) => !failed.some(([one]) => one === row));
  say(`${done.length > 0 ? `${tasks(done)}: parked for you.` : ''}${failures(failed)}`);
}
