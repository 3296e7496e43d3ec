// How requests reach one relay: HTTP with a deadline, and WebSockets.

import * as http from 'node:http';
import * as https from 'node:https';

import * as v from 'valibot';
import { WebSocket } from 'ws';

import { oneLine } from '../text.js';
import { opened } from '../websocket.js';

/** Largest JSON answer. */
const MAX_ANSWER_BYTES = 16 * 1024 * 1024;

/** Largest answer that says why a request was refused. */
const MAX_REFUSAL_BYTES = 64 * 1024;

const REQUEST_TIMEOUT_MS = 10_000;

/** The same where the relay asks a worker first. */
export const WORKER_TIMEOUT_MS = 60_000;

/** Time limit for a WebSocket to open. */
const HANDSHAKE_TIMEOUT_MS = 20_000;

/** Largest message of a WebSocket. */
const MAX_MESSAGE_BYTES = 64 * 1024;

/** The header by which a relay that does not know a link identifies itself. */
const REPLICA_HEADER = 'ray-relay-replica';

/** Why a relay did not do what was asked. `status` is 0 if there was no answer. The message is a whole sentence. */
export class RelayError extends Error {
  constructor(
    readonly status: number,
    message: string,
    /** The relay process that does not know the requested link. */
    readonly replica?: string,
  ) {
    super(message);
  }

  get isUnauthorized(): boolean {
    return this.status === 401;
  }
}

/** Where a relay is reached: its base URL, whose path has no slash at its end, and how connections are made. */
export interface ReachedRelay {
  url: URL;
  options: {
    /** PEM text of the authorities to trust instead of the system's. */
    ca?: string;
    /** Makes the connections, where they are forwarded. */
    agent?: http.Agent;
  };
}

/** `body` makes it a POST; `timeoutMs` is until the relay begins to answer; `maxBytes` bounds the answer. */
export interface RequestOptions {
  body?: unknown;
  timeoutMs?: number;
  maxBytes?: number;
  signal?: AbortSignal;
}

/** Source of the credential. `fresh`: the last one was refused, so make another, if there can be one. */
export type Authorization = (fresh: boolean) => Promise<string | undefined>;

const Refusal = v.object({ error: v.string(), request: v.optional(v.string()) });

export class Endpoint {
  /** `reach` throws a {@link RelayError}. */
  constructor(
    private readonly reach: () => Promise<ReachedRelay>,
    private readonly authorization: Authorization,
  ) {}

  /** Runs `send` with the credential, and once more with a fresh one if that is refused. */
  private async authorized<T>(send: (headers: Record<string, string>) => Promise<T>): Promise<T> {
    const token = await this.authorization(false);
    try {
      return await send(bearer(token));
    } catch (error) {
      if (!(error instanceof RelayError) || !error.isUnauthorized) throw error;
      const fresh = await this.authorization(true);
      if (fresh === undefined || fresh === token) throw error;
      return send(bearer(fresh));
    }
  }

  /** The response to a request, whose status is 200. Throws a {@link RelayError}. */
  async open(path: string, options: RequestOptions = {}): Promise<http.IncomingMessage> {
    const reached = await this.reach();
    return this.authorized((headers) => this.once(reached, path, headers, options));
  }

  private once(
    reached: ReachedRelay,
    path: string,
    headers: Record<string, string>,
    options: RequestOptions,
  ): Promise<http.IncomingMessage> {
    const text = options.body === undefined ? undefined : JSON.stringify(options.body);
    if (text !== undefined) headers['Content-Type'] = 'application/json';
    const target = targetOf(reached.url, path, 'http');
    const { request } = target.protocol === 'https:' ? https : http;
    const method = text === undefined ? 'GET' : 'POST';
    return new Promise((resolve, reject) => {
      const sent = request(target, { method, headers, signal: options.signal, ...reached.options }, (response) => {
        clearTimeout(timer);
        if (response.statusCode === 200) return resolve(response);
        refusal(response).then(reject, reject);
      });
      const timeout = options.timeoutMs ?? REQUEST_TIMEOUT_MS;
      const timer = setTimeout(() => {
        sent.destroy();
        reject(unreachable(new Error('no answer in time')));
      }, timeout);
      sent.on('upgrade', (_response, socket) => {
        clearTimeout(timer);
        socket.destroy();
        reject(unreachable(new Error('it answers with another protocol')));
      });
      sent.on('error', (error) => {
        clearTimeout(timer);
        reject(unreachable(error));
      });
      sent.end(text);
    });
  }

  /** The JSON of a response, within ten seconds after the relay has begun to answer. Throws a {@link RelayError}. */
  async json<T>(schema: v.GenericSchema<unknown, T>, path: string, options: RequestOptions = {}): Promise<T> {
    const response = await this.open(path, options);
    const text = await textOf(response, options.maxBytes ?? MAX_ANSWER_BYTES);
    try {
      return v.parse(schema, JSON.parse(text));
    } catch {
      throw new RelayError(0, `The answer to ${path.split('?')[0]} is not a relay's.`);
    }
  }

  /** An open WebSocket at `path`. Throws a {@link RelayError}. */
  async webSocket(path: string, protocol: string, extra: Record<string, string>): Promise<WebSocket> {
    const reached = await this.reach();
    return this.authorized((headers) => this.webSocketOnce(reached, path, protocol, { ...headers, ...extra }));
  }

  private webSocketOnce(
    reached: ReachedRelay,
    path: string,
    protocol: string,
    headers: Record<string, string>,
  ): Promise<WebSocket> {
    const socket = new WebSocket(targetOf(reached.url, path, 'ws'), protocol, {
      headers,
      handshakeTimeout: HANDSHAKE_TIMEOUT_MS,
      maxPayload: MAX_MESSAGE_BYTES,
      perMessageDeflate: false,
      ...reached.options,
    });
    return opened(socket, { failed: unreachable, refused: refusal });
  }
}

function targetOf(base: URL, path: string, scheme: 'http' | 'ws'): URL {
  const target = new URL(base);
  target.protocol = target.protocol.replace('http', scheme);
  const [pathname, query] = path.split('?', 2);
  target.pathname = `${base.pathname.replace(/\/+$/, '')}${pathname ?? ''}`;
  target.search = query === undefined ? '' : `?${query}`;
  return target;
}

function bearer(token: string | undefined): Record<string, string> {
  return token === undefined ? {} : { Authorization: `Bearer ${token}` };
}

/** `error` of any source as a {@link RelayError}. */
export function unreachable(error: Error): RelayError {
  if (error instanceof RelayError) return error;
  if (error.name === 'KubeError') return new RelayError(0, error.message);
  const why = networkCause(error) ?? CERTIFICATE_CAUSES[codeOf(error)] ?? oneLine(error.message, 200);
  return new RelayError(0, `The relay does not answer: ${why}.`);
}

/** The code of an error of Node.js. */
export function codeOf(error: Error): string {
  return 'code' in error && typeof error.code === 'string' ? error.code : '';
}

/** Why a connection failed, in words; `undefined`: it is no such error. */
export function networkCause(error: Error): string | undefined {
  return NETWORK_CAUSES[codeOf(error)];
}

const NETWORK_CAUSES: Record<string, string> = {
  ECONNREFUSED: 'nothing listens at its address',
  ENOTFOUND: 'no such host',
  EAI_AGAIN: 'its host name cannot be resolved now',
  ETIMEDOUT: 'the connection timed out',
  EHOSTUNREACH: 'there is no way to its host',
  ENETUNREACH: 'there is no network',
  ECONNRESET: 'the connection was reset',
};

const CERTIFICATE_CAUSES: Record<string, string> = {
  DEPTH_ZERO_SELF_SIGNED_CERT: 'its certificate is self-signed. Choose its CA file',
  SELF_SIGNED_CERT_IN_CHAIN: 'its certificate is signed by an unknown authority. Choose the CA file',
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: 'its certificate is signed by an unknown authority. Choose the CA file',
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: 'its certificate is signed by an unknown authority. Choose the CA file',
  CERT_HAS_EXPIRED: 'its certificate has expired',
  EPROTO: 'one side speaks TLS and the other does not. Check whether the address is http or https',
};

async function refusal(response: http.IncomingMessage): Promise<RelayError> {
  const status = response.statusCode ?? 0;
  const replica = response.headers[REPLICA_HEADER];
  const known = typeof replica === 'string' ? replica : undefined;
  try {
    const answer = v.parse(Refusal, JSON.parse(await textOf(response, MAX_REFUSAL_BYTES)));
    const request = answer.request === undefined ? '' : ` (request ${answer.request})`;
    const text = oneLine(`${answer.error}${request}`, 1000);
    // The relay's errors begin in lower case, as those of a command do.
    return new RelayError(status, `${text.charAt(0).toUpperCase()}${text.slice(1)}.`, known);
  } catch {
    // A proxy before the relay has answered, or another program.
    return new RelayError(status, `The relay's address answers ${status}. Is a relay there?`, known);
  }
}

async function textOf(response: http.IncomingMessage, most: number): Promise<string> {
  const timer = setTimeout(() => response.destroy(new Error('the answer does not end')), REQUEST_TIMEOUT_MS);
  const chunks: Buffer[] = [];
  let length = 0;
  try {
    for await (const chunk of response as AsyncIterable<Buffer>) {
      length += chunk.length;
      if (length > most) throw new Error('the answer is too large');
      chunks.push(chunk);
    }
    return Buffer.concat(chunks).toString('utf8');
  } catch (error) {
    throw unreachable(error as Error);
  } finally {
    clearTimeout(timer);
    response.destroy();
  }
}
