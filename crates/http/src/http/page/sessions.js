// The live sessions: the user's own, or all for administrators. Polled every few seconds.

import { askToConfirm } from './dialog.js';
import { json } from './relay.js';
import { clean, find, make, showMessage, time, write } from './text.js';

const REFRESH_INTERVAL_MS = 5_000;

const PROTOCOLS = { dap: 'debugger', dap_cluster: 'debugger of a cluster', terminal: 'terminal', websocket: 'dashboard', reverse: 'rendezvous', lines: 'armed line' };

/** Ends the session of `row` after a confirmation. */
async function endSession(row, name, refresh) {
  const isLine = Boolean(row.armed);
  const question = isLine ? `Disarm ${name}? Tasks that are paused there stay paused.` : `End this session with ${name}? The task runs on.`;
  if (!(await askToConfirm(question, isLine ? 'Disarm it' : 'End it'))) return;
  let message = isLine ? `${name} is disarmed.` : `The session with ${name} has ended.`;
  try {
    await json('v1/sessions/end', { method: 'POST', body: { id: row.id, replica: row.replica } });
  } catch (error) {
    message = error.message;
  }
  showMessage(message);
  refresh();
}

/** The armed lines of a session, such as `train.py:26 in raysubmit_x, 3 hits`. */
function armed({ lines, jobs, hits }) {
  return `${lines.join(', ')} in ${jobs.join(', ')}, ${hits === 1 ? '1 hit' : `${hits} hits`}`;
}

function item(row, own, refresh) {
  const isLine = Boolean(row.armed);
  const name = row.name || (isLine && row.armed.lines.join(', ')) || (row.breakpoint ? `breakpoint ${row.breakpoint}` : PROTOCOLS[row.protocol] || row.protocol);
  const owner = [row.subject, row.client].filter(Boolean).join(', ') || 'a client';
  // Only sessions of this relay with a worker or an armed line can be ended.
  const ends = (isLine || ['dap', 'terminal'].includes(row.protocol)) && ['attached', 'parked'].includes(row.state) && row.replica === own;
  const button = ends ? make('button', { type: 'button', class: 'grave small', 'aria-label': `${isLine ? 'Disarm' : 'End the session with'} ${clean(name)}`, onclick: () => endSession(row, name, refresh) }, isLine ? 'Disarm' : 'End') : null;
  const fact = (word, value, kind) => make('p', { class: kind }, make('span', { class: 'word' }, word), ' ', value);
  return make(
    'li',
    { 'data-state': 'attached' },
    make('div', { class: 'session' }, make('h3', {}, make('span', { class: 'name' }, name), make('span', { class: 'place' }, row.breakpoint ?? '')), fact('by', owner, 'node'), fact('for', time(row.since * 1000), 'waiting'), row.armed ? fact('armed', armed(row.armed), 'node') : null, make('p', { class: 'state' }, make('span', { class: 'badge' }, `${PROTOCOLS[row.protocol] || clean(row.protocol)}, ${clean(row.state)}`), ' ', button)),
  );
}

/** Shows the sessions until `stop` of the result is called. `isAdmin`: those of all users. */
export function watch(isAdmin) {
  let isStopped = false;
  let timer;
  function show(shown, replica) {
    const list = find('live');
    const at = [...list.querySelectorAll('button')].indexOf(document.activeElement);
    list.replaceChildren(...shown.map((row) => item(row, replica, refresh)));
    if (at >= 0) list.querySelectorAll('button')[at]?.focus({ preventScroll: true });
  }
  write(find('held'), isAdmin ? 'Sessions' : 'Your sessions');
  async function refresh() {
    clearTimeout(timer);
    if (isStopped) return;
    if (!document.hidden) {
      try {
        const { sessions, replica } = await json('v1/sessions');
        if (isStopped) return;
        const shown = sessions.filter((row) => row.state !== 'handshake');
        show(shown, replica);
        write(find('session-count'), shown.length ? `${shown.length}` : '');
        find('no-sessions').hidden = shown.length > 0;
        write(find('no-sessions'), isAdmin ? 'There is no session.' : 'You have no session.');
      } catch {
        // The top of the page reports that the relay is away.
      }
    }
    if (!isStopped) timer = setTimeout(refresh, REFRESH_INTERVAL_MS);
  }
  refresh();
  return {
    refresh,
    stop() {
      isStopped = true;
      clearTimeout(timer);
    },
  };
}
