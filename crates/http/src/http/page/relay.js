// Requests to the relay. Addresses are relative, so that the page works below any path.

const KEEP = 'ray-relay-token';

/** Why the relay does not answer as it was asked; `status` is 0 where it does not answer at all. */
export class Refused extends Error {
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

/** The token that was typed in; null: none, and the browser's cookie or certificate says who this is. */
export function token() {
  return sessionStorage.getItem(KEEP);
}

/** Keeps a token for this tab. */
export function keep(text) {
  sessionStorage.setItem(KEEP, text);
}

/** Forgets it. */
export function forget() {
  sessionStorage.removeItem(KEEP);
}

/** The answer to a request of `path` below `/relay/`, where it is a good one. */
export async function ask(path, { method = 'GET', body, signal } = {}) {
  const known = token();
  const headers = {};
  if (known) headers.Authorization = `Bearer ${known}`;
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  let response;
  try {
    response = await fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      // With a token nothing else says who this is.
      credentials: known ? 'omit' : 'same-origin',
      cache: 'no-store',
      signal,
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Refused(0, 'the relay does not answer');
  }
  if (response.ok) return response;
  let sentence = `the relay answers ${response.status}`;
  try {
    const told = await response.json();
    if (told.error) sentence = told.request ? `${told.error} (request ${told.request})` : told.error;
  } catch {
    // Whatever stands between here and the relay has answered.
  }
  throw new Refused(response.status, sentence);
}

/** The same as JSON, within ten seconds. */
export async function json(path, options = {}) {
  const signal = AbortSignal.timeout(options.patience ?? 10_000);
  try {
    const response = await ask(path, { ...options, signal });
    return await response.json();
  } catch (error) {
    throw error instanceof Refused ? error : new Refused(0, 'the relay does not answer');
  }
}
