// The page: who this is, what is paused, and how old that is.

import { Comparison } from './compare.js';
import { dashboards, goOn } from './dashboards.js';
import { follow } from './feed.js';
import { Stops } from './list.js';
import { counted, Desktop } from './notify.js';
import { Pane } from './pane.js';
import { forget, json, keep, Refused, token } from './relay.js';
import { failedTasks, runningTasks } from './running.js';
import { watch } from './sessions.js';
import { GroupPrompt } from './several.js';
import { title } from './stop.js';
import { Task } from './task.js';
import { find, make, time, write } from './text.js';
import { views } from './views.js';

/** A list older than this is worth a word, in seconds. */
const OLD = 10;

/** Who this is, once that is known. */
const me = { subject: null, scopes: new Set() };
const pane = new Pane(find('task'), (key) => stops.grid.focus(key));
const stops = new Stops(me, { opened: open, compare, prompt, counted: count });
const desktop = new Desktop((row) => open(stops.rows.get(row.id) ?? row, { focus: true, byPerson: true }));
const runs = runningTasks(me, (id) => {
  see('paused');
  if (stops.rows.has(id)) open(stops.rows.get(id), { focus: true, byPerson: true });
});
const fails = failedTasks(me);
const see = views(find('views'), (shown) => ({ running: runs, failed: fails })[shown]?.ask());
let stop = () => {};
let lostSince = null;
let isFirst = true;

/** Shows how the connection to the relay is. */
function link(kind, ...parts) {
  find('link').dataset.kind = kind;
  const shown = make('span', {}, ...parts);
  if (find('link').textContent !== shown.textContent) find('link').replaceChildren(shown);
}

/** Says since when a head does not answer, of each that does not, and where clusters are not looked for. */
function heads({ clusters, discovery }) {
  dashboards(clusters);
  const narrowed = discovery?.narrowed ? [[`Only ${discovery.scope} is looked at: ${discovery.narrowed}`]] : [];
  const troubled = clusters.filter((cluster) => cluster.trouble || (cluster.snapshot_age_seconds ?? 0) > OLD);
  const isAway = (cluster) => cluster.complete !== false || (cluster.snapshot_age_seconds ?? 0) > OLD;
  const sentences = narrowed.concat(troubled.map((cluster) => {
    const age = cluster.snapshot_age_seconds;
    const trouble = `Cluster ${cluster.name}: ${cluster.trouble || 'the head does not answer'}`;
    if (age == null || !isAway(cluster)) return [trouble];
    return [`${trouble}. Below is its list of `, time(Math.round(Date.now() - age * 1000)), ' ago.'];
  }));
  // Said once, and not again with each second, which the times in them tell by themselves.
  const key = JSON.stringify([narrowed, ...troubled.map((cluster) => [cluster.name, cluster.trouble, isAway(cluster)])]);
  const shown = find('troubles');
  if (shown.dataset.key !== key) shown.replaceChildren(...sentences.map((parts) => make('p', { class: 'trouble' }, ...parts)));
  shown.dataset.key = key;
  stops.aged(troubled.filter(isAway).map((cluster) => cluster.name));
}

/** Opens the task of `row`; where a person did, it is looked at, and the address names it. */
function open(row, { focus, byPerson } = {}) {
  if (byPerson && find('paused').hidden) see('paused');
  const task = pane.show(row.id, () => new Task(row, me), focus || (byPerson && pane.isStacked));
  stops.grid.mark(row.id);
  if (!byPerson) return;
  find('gone').hidden = true;
  history.replaceState(null, '', `#${row.id}`);
  task.openedByPerson();
}

/** Opens a comparison of `rows`. */
function compare(rows) {
  stops.grid.mark(null);
  pane.show(`compare ${rows.map((row) => row.id)}`, () => new Comparison(rows, me, prompt), true).look();
}

/** Opens one prompt for all of `rows`. */
function prompt(rows) {
  stops.grid.mark(null);
  pane.show(`prompt ${rows.map((row) => row.id)}`, () => new GroupPrompt(rows), true).enter();
}

/** Shows how many there are. The first one is opened; what nobody has asked for is not asked of its debugger, though. */
function count({ total, fitting }) {
  write(find('count'), fitting === total ? `${total}` : `${fitting} of ${total}`);
  counted(total);
  if (!isFirst && !pane.shown && stops.first) open(stops.first);
}

/** Goes to what the address names, a breakpoint or a task that has failed: `/relay/#ID`, as a notice has it. */
async function go() {
  const id = location.hash.slice(1);
  // Not one of the document's own places.
  if (!id || find(id)) return;
  const row = stops.rows.get(id);
  find('gone').hidden = true;
  if (row) return open(row, { byPerson: true });
  await fails.ask();
  const failed = fails.rows.find((one) => one.id === id);
  if (failed) {
    see('failed');
    return fails.open(failed, true);
  }
  find('gone').hidden = false;
  write(find('gone'), `What the address names, ${id}, is not paused, nor kept of a task that has failed, or is not for you to see.`);
}

function news(text) {
  write(find('news'), text);
}

/** Asks for a token. */
function ask(why) {
  stop();
  forget();
  pane.clear();
  isFirst = true;
  stops.all([]);
  runs.clear();
  fails.clear();
  for (const id of ['lists', 'views', 'forget']) find(id).hidden = true;
  find('sign-in').hidden = false;
  write(find('who'), '');
  write(find('why'), why);
  link('off', 'not signed in');
  find('token').focus();
}

async function begin() {
  let known;
  link('wait', 'connecting …');
  try {
    known = await json('v1/whoami');
  } catch (error) {
    // With a refused token it is not tried again by itself: that is throttled.
    if (error instanceof Refused && (error.status === 401 || (token() && error.status >= 400 && error.status < 500))) {
      const why = token() ? `That token is not taken: ${error.message}.` : 'This relay gives nothing without a token.';
      return ask(why);
    }
    link('lost', `${error.message}; trying again`);
    return setTimeout(begin, 5_000);
  }
  find('sign-in').hidden = true;
  for (const id of ['lists', 'views']) find(id).hidden = false;
  find('forget').hidden = !token();
  see('paused');
  goOn();
  Object.assign(me, { subject: known.subject, scopes: new Set(known.scopes) });
  const left = known.expires ? [', for ', time(known.expires * 1000)] : [];
  find('who').replaceChildren(...(me.subject ? [me.subject, ...left] : ['open to everybody who reaches it']));
  if (!me.scopes.has('list')) {
    link('off', 'no list for you');
    find('none').hidden = false;
    return write(find('none'), 'The permission `list` is needed to see what is paused.');
  }
  follows();
}

/** Shows the list, and what becomes of it. */
function follows() {
  const sessions = watch(me.scopes.has('admin'));
  const isThere = (kind, text) => {
    lostSince = null;
    find('lists').classList.remove('old');
    link(kind, text);
  };
  const end = follow({
    all: (rows) => {
      stops.all(rows);
      for (const [key, one] of pane.open) {
        if (stops.rows.has(key)) one.show(stops.rows.get(key));
        else one.gone?.();
      }
      if (!isFirst) return;
      isFirst = false;
      go();
      count(stops.counts);
    },
    one: (row) => {
      const isNew = stops.one(row);
      pane.of(row.id)?.show(row);
      if (!isNew) return sessions.look();
      news(`${title(row)} is paused on ${row.node_ip}`);
      desktop.appeared(row);
    },
    over: (row, name) => {
      stops.over(row);
      pane.of(row.id)?.gone();
      news(`${title(row)}: ${name}`);
      sessions.look();
    },
    live: () => isThere('live', 'live'),
    polled: () => isThere('live', 'every 5 s'),
    lost: (sentence) => {
      lostSince ??= Date.now();
      find('lists').classList.add('old');
      link('lost', 'no list for ', time(lostSince), `: ${sentence}; trying again`);
    },
    heads,
    stranger: ask,
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
    keep(typed);
    begin();
  }
});
find('forget').addEventListener('click', () => ask('The token is forgotten.'));
addEventListener('hashchange', go);
find('keys').addEventListener('click', () => find('help').showModal());
addEventListener('keydown', (event) => {
  if (event.key !== '/' || event.target !== document.body || find('paused').hidden) return;
  event.preventDefault();
  find('filter').focus();
});
begin();
