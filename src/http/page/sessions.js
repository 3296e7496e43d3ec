// The live sessions: one's own, and everybody's for administrators. Asked for every few seconds.

import { json } from './relay.js';
import { clean, find, make, span, write } from './text.js';

/** How often. */
const EVERY = 5_000;

const PROTOCOLS = { dap: 'debugger', dap_cluster: 'debugger of a cluster', terminal: 'terminal', websocket: 'dashboard', reverse: 'rendezvous' };

function item(row) {
  const what = row.name || (row.breakpoint ? `breakpoint ${row.breakpoint}` : PROTOCOLS[row.protocol] || row.protocol);
  const who = [row.subject, row.client].filter(Boolean).join(', ') || 'somebody';
  const since = span(Date.now() / 1000 - row.since);
  const fact = (word, value, kind) => make('p', { class: kind }, make('span', { class: 'word' }, word), ' ', value);
  return make(
    'li',
    { 'data-state': 'attached' },
    make('div', { class: 'line' }, make('h3', {}, make('span', { class: 'name' }, what), make('span', { class: 'place' }, row.breakpoint ?? '')), fact('by', who, 'node'), fact('for', since, 'waiting'), make('p', { class: 'state' }, make('span', { class: 'badge' }, `${PROTOCOLS[row.protocol] || clean(row.protocol)}, ${clean(row.state)}`))),
  );
}

/** Shows them until the function that it gives is called. `isAdmin`: they are everybody's. */
export function watch(isAdmin) {
  let over = false;
  let timer;
  write(find('held'), isAdmin ? 'Sessions' : 'Your sessions');
  async function look() {
    clearTimeout(timer);
    if (over) return;
    if (!document.hidden) {
      try {
        const { sessions } = await json('v1/sessions');
        if (over) return;
        const shown = sessions.filter((row) => row.state !== 'handshake');
        find('sessions').replaceChildren(...shown.map(item));
        find('no-sessions').hidden = shown.length > 0;
        write(find('no-sessions'), isAdmin ? 'Nobody has a session.' : 'You have no session.');
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
