// The page: who this is, what waits, and how old that is.

import { dashboards, goOn } from './dashboards.js';
import { follow } from './feed.js';
import { forget, json, keep, Refused, token } from './relay.js';
import { Rows, title } from './rows.js';
import { watch } from './sessions.js';
import { clock, find, make, span, write } from './text.js';

/** A list older than this is worth a word, in seconds. */
const OLD = 10;

const rows = new Rows(find('rows'));
let stop = () => {};
let lostSince = null;

/** Shows how the connection to the relay is. */
function link(kind, text) {
  find('link').dataset.kind = kind;
  write(find('link'), text);
}

/** Shows how many there are. */
function count({ total, fitting, shown }) {
  write(find('count'), fitting === total ? `${total}` : `${fitting} of ${total}`);
  document.title = total > 0 ? `(${total}) ray-relay` : 'ray-relay';
  const none = find('none');
  none.hidden = shown > 0 && shown === fitting;
  if (total === 0) write(none, 'No task waits at a breakpoint.');
  else if (fitting === 0) write(none, 'Nothing fits the filter.');
  else write(none, `${fitting - shown} more: filter to see them.`);
}

/** Says since when a head does not answer, of each that does not, and where clusters are not looked for. */
function heads({ clusters, discovery }) {
  dashboards(clusters);
  const narrowed = discovery?.narrowed ? [`Only ${discovery.scope} is looked at: ${discovery.narrowed}`] : [];
  const troubled = clusters.filter((cluster) => cluster.trouble || (cluster.snapshot_age_seconds ?? 0) > OLD);
  const sentences = narrowed.concat(troubled.map((cluster) => {
    const age = cluster.snapshot_age_seconds;
    const trouble = cluster.trouble || 'the head does not answer';
    if (age == null) return `Cluster ${cluster.name}: ${trouble}`;
    if (cluster.complete === false && age <= OLD) return `Cluster ${cluster.name}: ${trouble}`;
    const since = clock(new Date(Date.now() - age * 1000));
    return `Cluster ${cluster.name}: ${trouble}. Below is its list of ${since}, ${span(age)} ago.`;
  }));
  const shown = find('troubles');
  // Said once, and not again with each second.
  const key = JSON.stringify([narrowed, ...troubled.map((cluster) => [cluster.name, cluster.trouble])]);
  const paragraphs = sentences.map((sentence) => make('p', { class: 'trouble' }, sentence));
  if (shown.dataset.key !== key) shown.replaceChildren(...paragraphs);
  else [...shown.children].forEach((child, at) => write(child, sentences[at]));
  shown.dataset.key = key;
  const away = (cluster) => cluster.complete !== false || (cluster.snapshot_age_seconds ?? 0) > OLD;
  rows.aged(troubled.filter(away).map((cluster) => cluster.name));
}

/** Goes to the breakpoint that the address names: `/relay/#ID`, as a notice has it. */
function go() {
  const id = location.hash.slice(1);
  // Not one of the document's own places.
  if (!id || find(id)) return;
  const none = find('gone');
  none.hidden = rows.reveal(id);
  write(none, `What the address names, ${id}, does not wait, or is not for you to see.`);
}

function news(text) {
  write(find('news'), text);
}

/** Asks for a token. */
function ask(why) {
  stop();
  forget();
  rows.all([]);
  find('lists').hidden = true;
  find('sign-in').hidden = false;
  find('forget').hidden = true;
  write(find('who'), '');
  write(find('why'), why);
  link('off', 'not signed in');
  find('token').focus();
}

async function begin() {
  let me;
  link('wait', 'connecting …');
  try {
    me = await json('v1/whoami');
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
  find('lists').hidden = false;
  find('forget').hidden = !token();
  goOn();
  const until = me.expires ? `, until ${clock(new Date(me.expires * 1000))}` : '';
  write(find('who'), me.subject ? `${me.subject}${until}` : 'open to everybody who reaches it');
  if (!me.scopes.includes('list')) {
    link('off', 'no list for you');
    return write(find('none'), 'The permission `list` is needed to see what waits.');
  }
  const sessions = watch(me.scopes.includes('admin'));
  let isFirst = true;
  const all = (list) => {
    count(rows.all(list));
    if (isFirst) go();
    isFirst = false;
  };
  const end = follow({
    all,
    one: (row) => {
      const done = rows.one(row);
      count(done);
      if (done.isNew) news(`${title(row)} waits on ${row.node_ip}`);
      else sessions.look();
    },
    over: (row, name) => {
      count(rows.over(row));
      news(`${title(row)}: ${name}`);
      sessions.look();
    },
    live: () => {
      lostSince = null;
      find('lists').classList.remove('old');
      link('live', 'live');
    },
    polled: () => {
      lostSince = null;
      find('lists').classList.remove('old');
      link('live', 'every 5 s');
    },
    lost: (sentence) => {
      lostSince ??= new Date();
      find('lists').classList.add('old');
      link('lost', `no list since ${clock(lostSince)}: ${sentence}; trying again`);
    },
    heads,
    stranger: ask,
  });
  stop = () => {
    end();
    sessions.stop();
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
find('filter').addEventListener('input', () => count(rows.narrow(find('filter').value)));
addEventListener('hashchange', go);
begin();
