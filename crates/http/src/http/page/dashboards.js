// Ways to the dashboards, which are programs of the clusters' and have origins of their own.

import { json, token } from './relay.js';
import { find, make, say } from './text.js';

/** Goes to the dashboard of `cluster` (null: the default one) in `target`, as whom the token is of. */
async function go(cluster, path, target) {
  const body = cluster ? { cluster, path } : { path };
  const { url, ticket, at } = await json('v1/dashboard', { method: 'POST', body });
  if (!ticket) return target === '_self' ? location.assign(url) : open(url, target, 'noopener');
  // A form, with which the browser says there that it is this page's. The ticket is good for half a minute.
  const field = (name, value) => make('input', { type: 'hidden', name, value });
  const form = make('form', { method: 'post', action: url, target, rel: 'noopener', hidden: true });
  form.append(field('ticket', ticket), field('at', at));
  document.body.append(form);
  form.submit();
  form.remove();
}

/** A link that takes along who this is. Without a token the relay knows that by itself, and leads on. */
function leads(link, cluster) {
  link.addEventListener('click', async (event) => {
    if (!token()) return;
    event.preventDefault();
    say('');
    try {
      await go(cluster, '/', '_blank');
    } catch (error) {
      say(`No dashboard: ${error.message}.`);
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
    const to = { href: `clusters/${encodeURIComponent(name)}/`, target: '_blank', rel: 'noopener noreferrer' };
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
    await go(asked.get('dashboard'), at, '_self');
  } catch (error) {
    say(`No dashboard: ${error.message}.`);
  }
}

leads(find('dashboard'), null);
