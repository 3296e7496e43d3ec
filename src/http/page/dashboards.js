// Ways to the dashboards, which are programs of the clusters' and have origins of their own.

import { json, token } from './relay.js';
import { find, make, write } from './text.js';

/** The address of the dashboard of `cluster` (null: the default one), for whom the token is of; good for half a minute. */
async function way(cluster, path) {
  const body = cluster ? { cluster, path } : { path };
  const { url } = await json('v1/dashboard', { method: 'POST', body });
  return new URL(url, location.href).href;
}

/** A link that takes along who this is. Without a token the relay knows that by itself, and leads on. */
function leads(link, cluster) {
  link.addEventListener('click', async (event) => {
    if (!token()) return;
    event.preventDefault();
    write(find('ended'), '');
    try {
      open(await way(cluster, '/'), '_blank', 'noopener');
    } catch (error) {
      write(find('ended'), `No dashboard: ${error.message}.`);
    }
  });
  return link;
}

/** One link for each of `clusters`, where there are several; the first link is of the default one. */
export function dashboards(clusters) {
  const known = clusters.filter((cluster) => cluster.snapshot_age_seconds != null).map((cluster) => cluster.name);
  const shown = find('dashboards');
  const key = JSON.stringify(known);
  if (shown.dataset.key === key) return;
  shown.dataset.key = key;
  const link = (name) => {
    const to = { href: `clusters/${encodeURIComponent(name)}/`, target: '_blank', rel: 'noopener' };
    return leads(make('a', to, `${name} ↗`), name);
  };
  shown.replaceChildren(...(known.length > 1 ? known.map(link) : []));
}

/** Goes on to the dashboard for which somebody was sent here to say who they are: `?dashboard=NAME&at=PATH`. */
export async function goOn() {
  const asked = new URLSearchParams(location.search);
  if (!asked.has('dashboard')) return;
  const at = (asked.get('at') || '/') + location.hash;
  // Whoever comes back here means this page.
  history.replaceState(null, '', location.pathname);
  try {
    location.assign(await way(asked.get('dashboard'), at));
  } catch (error) {
    write(find('ended'), `No dashboard: ${error.message}.`);
  }
}

leads(find('dashboard'), null);
