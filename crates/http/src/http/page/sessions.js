// The live sessions: one's own, and everybody's for administrators. Asked for every few seconds.

import { asked } from './dialog.js';
import { json } from './relay.js';
import { clean, find, make, say, time, write } from './text.js';

/** How often. */
const EVERY = 5_000;

const PROTOCOLS = { dap: 'debugger', dap_cluster: 'debugger of a cluster', terminal: 'terminal', websocket: 'dashboard', reverse: 'rendezvous' };

/** Ends the session of `row`, once that is agreed to. */
async function end(row, what, look) {
  if (!(await asked(`End this session with ${what}? The task runs on.`, 'End it'))) return;
  let said = `The session with ${what} has ended.`;
  try {
    await json('v1/sessions/end', { method: 'POST', body: { id: row.id, replica: row.replica } });
  } catch (error) {
    said = error.message;
  }
  say(said);
  look();
}

function item(row, own, look) {
  const what = row.name || (row.breakpoint ? `breakpoint ${row.breakpoint}` : PROTOCOLS[row.protocol] || row.protocol);
  const who = [row.subject, row.client].filter(Boolean).join(', ') || 'a client';
  // Of this relay, and with a worker: others it cannot end.
  const ends = ['dap', 'terminal'].includes(row.protocol) && ['attached', 'parked'].includes(row.state) && row.replica === own;
  const button = ends ? make('button', { type: 'button', class: 'grave small', 'aria-label': `End the session with ${clean(what)}`, onclick: () => end(row, what, look) }, 'End') : null;
  const fact = (word, value, kind) => make('p', { class: kind }, make('span', { class: 'word' }, word), ' ', value);
  return make(
    'li',
    { 'data-state': 'attached' },
    make('div', { class: 'session' }, make('h3', {}, make('span', { class: 'name' }, what), make('span', { class: 'place' }, row.breakpoint ?? '')), fact('by', who, 'node'), fact('for', time(row.since * 1000), 'waiting'), make('p', { class: 'state' }, make('span', { class: 'badge' }, `${PROTOCOLS[row.protocol] || clean(row.protocol)}, ${clean(row.state)}`), ' ', button)),
  );
}

/** Shows them until the function that it gives is called. `isAdmin`: they are everybody's. */
export function watch(isAdmin) {
  let over = false;
  let timer;
  function show(shown, replica) {
    const list = find('live');
    const at = [...list.querySelectorAll('button')].indexOf(document.activeElement);
    list.replaceChildren(...shown.map((row) => item(row, replica, look)));
    if (at >= 0) list.querySelectorAll('button')[at]?.focus({ preventScroll: true });
  }
  write(find('held'), isAdmin ? 'Sessions' : 'Your sessions');
  async function look() {
    clearTimeout(timer);
    if (over) return;
    if (!document.hidden) {
      try {
        const { sessions, replica } = await json('v1/sessions');
        if (over) return;
        const shown = sessions.filter((row) => row.state !== 'handshake');
        show(shown, replica);
        write(find('session-count'), shown.length ? `${shown.length}` : '');
        find('no-sessions').hidden = shown.length > 0;
        write(find('no-sessions'), isAdmin ? 'There is no session.' : 'You have no session.');
      } catch {
        // That the relay is away is told at the top of the page.
      }
    }
    if (!over) timer = setTimeout(look, EVERY);
  }
  look();
  return {
    look,
    stop() {
      over = true;
      clearTimeout(timer);
    },
  };
}
