// Links to the dashboards of the clusters, which have origins of their own.

import { json, token } from './relay.js';
import { find, make, showMessage } from './text.js';

/** Opens the dashboard of `cluster` (null: the default one) in `target`, signed in as the token's user. */
async function openDashboard(cluster, path, target) {
  const body = cluster ? { cluster, path } : { path };
  const { url, ticket, at } = await json('v1/dashboard', { method: 'POST', body });
  if (!ticket) return target === '_self' ? location.assign(url) : open(url, target, 'noopener');
  // The browser sends this page's origin with a form. The ticket is valid for half a minute.
  const field = (name, value) => make('input', { type: 'hidden', name, value });
  const form = make('form', { method: 'post', action: url, target, rel: 'noopener', hidden: true });
  form.append(field('ticket', ticket), field('at', at));
  document.body.append(form);
  form.submit();
  form.remove();
}

/** Makes `link` sign in with the token. Without a token, the relay redirects by the cookie or certificate. */
function signInLink(link, cluster) {
  link.addEventListener('click', async (event) => {
    if (!token()) return;
    event.preventDefault();
    showMessage('');
    try {
      await openDashboard(cluster, '/', '_blank');
    } catch (error) {
      showMessage(`No dashboard: ${error.message}.`);
    }
  });
  return link;
}

/** Shows a link for each cluster, if there are several. */
export function dashboards(clusters) {
  const available = clusters.filter((cluster) => cluster.snapshot_age_seconds != null).map((cluster) => cluster.name);
  const container = find('dashboards');
  const key = JSON.stringify(available);
  if (container.dataset.key === key) return;
  container.dataset.key = key;
  const link = (name) => {
    const attributes = { href: `clusters/${encodeURIComponent(name)}/`, target: '_blank', rel: 'noopener noreferrer' };
    return signInLink(make('a', attributes, `${name} ↗`), name);
  };
  container.replaceChildren(...(available.length > 1 ? available.map(link) : []));
}

/** Continues to the dashboard that redirected here to sign in: `?dashboard=NAME&at=PATH`. */
export async function continueToDashboard() {
  const parameters = new URLSearchParams(location.search);
  if (!parameters.has('dashboard')) return;
  const at = (parameters.get('at') || '/') + location.hash;
  // Going back must stay on this page.
  history.replaceState(null, '', location.pathname);
  try {
    await openDashboard(parameters.get('dashboard'), at, '_self');
  } catch (error) {
    showMessage(`No dashboard: ${error.message}.`);
  }
}

signInLink(find('dashboard'), null);
