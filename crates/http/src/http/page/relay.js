// Requests to the relay. Addresses are relative, so that the page works below any path.

const STORAGE_KEY = 'ray-relay-token';

/** An error answer of the relay; `status` is 0 if it does not answer. */
export class RelayError extends Error {
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

/** The entered token; null: the browser's cookie or certificate authenticates the user. */
export function token() {
  return sessionStorage.getItem(STORAGE_KEY);
}

/** Stores a token for this tab. */
export function storeToken(text) {
  sessionStorage.setItem(STORAGE_KEY, text);
}

export function forgetToken() {
  sessionStorage.removeItem(STORAGE_KEY);
}

/** Returns the response to a request of `path` below `/relay/`, or throws a RelayError. */
export async function request(path, { method = 'GET', body, signal } = {}) {
  const storedToken = token();
  const headers = {};
  if (storedToken) headers.Authorization = `Bearer ${storedToken}`;
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  let response;
  try {
    response = await fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      // A token is the only credential of the request.
      credentials: storedToken ? 'omit' : 'same-origin',
      cache: 'no-store',
      signal,
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new RelayError(0, 'the relay does not answer');
  }
  if (response.ok) return response;
  let sentence = `the relay answers ${response.status}`;
  try {
    const answer = await response.json();
    if (answer.error) sentence = answer.request ? `${answer.error} (request ${answer.request})` : answer.error;
  } catch {
    // A proxy before the relay has answered.
  }
  throw new RelayError(response.status, sentence);
}

/** Returns the JSON of the response, by default within ten seconds. */
export async function json(path, options = {}) {
  const signal = AbortSignal.timeout(options.timeout ?? 10_000);
  try {
    const response = await request(path, { ...options, signal });
    return await response.json();
  } catch (error) {
    throw error instanceof RelayError ? error : new RelayError(0, 'the relay does not answer');
  }
}
