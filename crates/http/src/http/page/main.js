// The page: sign-in, the lists, and the state of the connection.

import { Comparison } from './compare.js';
import { dashboards, continueToDashboard } from './dashboards.js';
import { follow } from './feed.js';
import { Stops } from './list.js';
import { showCount, Desktop } from './notify.js';
import { Pane } from './pane.js';
import { forgetToken, json, storeToken, RelayError, token } from './relay.js';
import { failedTasks, runningTasks } from './running.js';
import { watch } from './sessions.js';
import { GroupPrompt } from './several.js';
import { title } from './stop.js';
import { Task } from './task.js';
import { find, make, time, write } from './text.js';
import { views } from './views.js';

/** An older list is reported. */
const MAX_LIST_AGE_S = 10;

/** The signed-in user. */
const me = { subject: null, scopes: new Set() };
const pane = new Pane(find('task'), (key) => stops.grid.focus(key));
const stops = new Stops(me, { opened: open, compare, prompt, counted: count });
const desktop = new Desktop((row) => open(stops.rows.get(row.id) ?? row, { focus: true, byUser: true }));
const runningList = runningTasks(me, (id) => {
  showView('paused');
  if (stops.rows.has(id)) open(stops.rows.get(id), { focus: true, byUser: true });
});
const failedList = failedTasks(me);
const showView = views(find('views'), (shown) => ({ running: runningList, failed: failedList })[shown]?.load());
let stop = () => {};
let lostSince = null;
let isFirst = true;

/** Shows the state of the connection to the relay. */
function showLink(kind, ...parts) {
  find('link').dataset.kind = kind;
  const shown = make('span', {}, ...parts);
  if (find('link').textContent !== shown.textContent) find('link').replaceChildren(shown);
}

/** Reports heads that do not answer, with the age of their list, and a limited discovery. */
function heads({ clusters, discovery }) {
  dashboards(clusters);
  const narrowed = discovery?.narrowed ? [[`Only ${discovery.scope} is looked at: ${discovery.narrowed}`]] : [];
  const troubled = clusters.filter((cluster) => cluster.trouble || (cluster.snapshot_age_seconds ?? 0) > MAX_LIST_AGE_S);
  const isAway = (cluster) => cluster.complete !== false || (cluster.snapshot_age_seconds ?? 0) > MAX_LIST_AGE_S;
  const sentences = narrowed.concat(troubled.map((cluster) => {
    const age = cluster.snapshot_age_seconds;
    const trouble = `Cluster ${cluster.name}: ${cluster.trouble || 'the head does not answer'}`;
    if (age == null || !isAway(cluster)) return [trouble];
    return [`${trouble}. Below is its list of `, time(Math.round(Date.now() - age * 1000)), ' ago.'];
  }));
  // Reported once: the times in the sentences update by themselves.
  const key = JSON.stringify([narrowed, ...troubled.map((cluster) => [cluster.name, cluster.trouble, isAway(cluster)])]);
  const shown = find('troubles');
  if (shown.dataset.key !== key) shown.replaceChildren(...sentences.map((parts) => make('p', { class: 'trouble' }, ...parts)));
  shown.dataset.key = key;
  stops.markStale(troubled.filter(isAway).map((cluster) => cluster.name));
}

/** Opens the task of `row`. If the user opened it, it is inspected, and the address names it. */
function open(row, { focus, byUser } = {}) {
  if (byUser && find('paused').hidden) showView('paused');
  const task = pane.show(row.id, () => new Task(row, me), focus || (byUser && pane.isStacked));
  stops.grid.mark(row.id);
  if (!byUser) return;
  find('gone').hidden = true;
  history.replaceState(null, '', `#${row.id}`);
  task.openedByUser();
}

/** Opens a comparison of `rows`. */
function compare(rows) {
  stops.grid.mark(null);
  pane.show(`compare ${rows.map((row) => row.id)}`, () => new Comparison(rows, me, prompt), true).inspect();
}

/** Opens one prompt for all of `rows`. */
function prompt(rows) {
  stops.grid.mark(null);
  pane.show(`prompt ${rows.map((row) => row.id)}`, () => new GroupPrompt(rows), true).enter();
}

/** Shows the number of tasks and opens the first, without a request to its debugger. */
function count({ total, matching }) {
  write(find('count'), matching === total ? `${total}` : `${matching} of ${total}`);
  showCount(total);
  if (!isFirst && !pane.shown && stops.first) open(stops.first);
}

/** Opens the breakpoint or failed task in the address: `/relay/#ID`, or the verdict on a job: `/relay/#why=JOB&cluster=NAME`, as in a notice. */
async function openFromAddress() {
  const id = location.hash.slice(1);
  const parts = new URLSearchParams(id);
  if (parts.get('why')) {
    showView('running');
    return runningList.openJob(parts.get('why'), parts.get('cluster') ?? undefined);
  }
  // The id of an element is an anchor of the document.
  if (!id || find(id)) return;
  const row = stops.rows.get(id);
  find('gone').hidden = true;
  if (row) return open(row, { byUser: true });
  await failedList.load();
  const failedRow = failedList.rows.find((one) => one.id === id);
  if (failedRow) {
    showView('failed');
    return failedList.open(failedRow, true);
  }
  find('gone').hidden = false;
  write(find('gone'), `What the address names, ${id}, is not paused, nor kept of a task that has failed, or is not for you to see.`);
}

function announceText(text) {
  write(find('news'), text);
}

/** Asks for a token. */
function signIn(reason) {
  stop();
  forgetToken();
  pane.clear();
  isFirst = true;
  stops.all([]);
  runningList.clear();
  failedList.clear();
  for (const id of ['lists', 'views', 'forget']) find(id).hidden = true;
  find('sign-in').hidden = false;
  write(find('who'), '');
  write(find('why'), reason);
  showLink('off', 'not signed in');
  find('token').focus();
}

async function start() {
  let identity;
  showLink('wait', 'connecting …');
  try {
    identity = await json('v1/whoami');
  } catch (error) {
    // A refused token is not retried: the relay throttles that.
    if (error instanceof RelayError && (error.status === 401 || (token() && error.status >= 400 && error.status < 500))) {
      const reason = token() ? `That token is not taken: ${error.message}.` : 'This relay gives nothing without a token.';
      return signIn(reason);
    }
    showLink('lost', `${error.message}; trying again`);
    return setTimeout(start, 5_000);
  }
  find('sign-in').hidden = true;
  for (const id of ['lists', 'views']) find(id).hidden = false;
  find('forget').hidden = !token();
  showView('paused');
  continueToDashboard();
  Object.assign(me, { subject: identity.subject, scopes: new Set(identity.scopes) });
  const expiry = identity.expires ? [', for ', time(identity.expires * 1000)] : [];
  find('who').replaceChildren(...(me.subject ? [me.subject, ...expiry] : ['open to everybody who reaches it']));
  if (!me.scopes.has('list')) {
    showLink('off', 'no list for you');
    find('none').hidden = false;
    return write(find('none'), 'The permission `list` is needed to see what is paused.');
  }
  startFeed();
}

/** Follows the list and the sessions. */
function startFeed() {
  const sessions = watch(me.scopes.has('admin'));
  const showConnected = (kind, text) => {
    lostSince = null;
    find('lists').classList.remove('old');
    showLink(kind, text);
  };
  const end = follow({
    all: (rows) => {
      stops.all(rows);
      for (const [key, one] of pane.open) {
        if (stops.rows.has(key)) one.show(stops.rows.get(key));
        else one.ended?.();
      }
      if (!isFirst) return;
      isFirst = false;
      openFromAddress();
      count(stops.counts);
    },
    changed: (row) => {
      const isNew = stops.update(row);
      pane.get(row.id)?.show(row);
      if (!isNew) return sessions.refresh();
      announceText(`${title(row)} is paused on ${row.node_ip}`);
      desktop.appeared(row);
    },
    ended: (row, name) => {
      stops.remove(row);
      pane.get(row.id)?.ended();
      announceText(`${title(row)}: ${name}`);
      sessions.refresh();
    },
    live: () => showConnected('live', 'live'),
    polled: () => showConnected('live', 'every 5 s'),
    lost: (sentence) => {
      lostSince ??= Date.now();
      find('lists').classList.add('old');
      showLink('lost', 'no list for ', time(lostSince), `: ${sentence}; trying again`);
    },
    heads,
    unauthenticated: signIn,
  });
  stop = () => {
    end();
    sessions.stop();
    stop = () => {};
  };
}

find('sign-in').addEventListener('submit', (event) => {
  event.preventDefault();
  const typed = find('token').value.trim();
  find('token').value = '';
  if (typed) {
    storeToken(typed);
    start();
  }
});
find('forget').addEventListener('click', () => signIn('The token is forgotten.'));
addEventListener('hashchange', openFromAddress);
find('keys').addEventListener('click', () => find('help').showModal());
addEventListener('keydown', (event) => {
  if (event.key !== '/' || event.target !== document.body || find('paused').hidden) return;
  event.preventDefault();
  find('filter').focus();
});
start();
