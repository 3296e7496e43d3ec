// Who the user is: a token, or a command that prints one. Kept in VS Code's secret storage, never in settings.

import { exec } from 'node:child_process';
import { homedir } from 'node:os';

import * as v from 'valibot';

import { RelayError } from './endpoint.js';

/** Time limit for a command: it may ask a user to log in. */
const COMMAND_TIMEOUT_MS = 120_000;

const MAX_OUTPUT_BYTES = 64 * 1024;

/** How long before its expiry a token is replaced. */
const RENEWAL_MS = 60_000;

/** At most so often another token is made: that may ask the user to log in. */
const MIN_INTERVAL_MS = 20_000;

/** Input that Kubernetes' credential plugins expect, without details of any cluster. */
const EXEC_INFO = JSON.stringify({
  apiVersion: 'client.authentication.k8s.io/v1',
  kind: 'ExecCredential',
  spec: { interactive: false },
});

/** What a user has chosen for a relay: a token, a command, or in Kubernetes their login or a ServiceAccount. */
export const Secret = v.union([
  v.object({ token: v.string() }),
  v.object({ command: v.string() }),
  v.object({ kube: v.literal('login') }),
  v.object({ account: v.string() }),
]);
export type Secret = v.InferOutput<typeof Secret>;

/** Makes a token by what a user has chosen. Throws a {@link RelayError}. */
export type TokenSource = (secret: Exclude<Secret, { token: string }>) => Promise<DatedToken>;

const ExecCredential = v.object({
  kind: v.literal('ExecCredential'),
  status: v.object({ token: v.pipe(v.string(), v.regex(/^\S+$/)), expirationTimestamp: v.optional(v.string()) }),
});

const Claims = v.object({ exp: v.number() });

export interface DatedToken {
  token: string;
  /** Milliseconds since 1970, if known. */
  expires?: number;
}

/** The credential of one relay, with the token that was made last. */
export class Credential {
  private current: DatedToken | undefined;
  private madeAt = 0;
  /** When to replace it, in milliseconds since 1970; `undefined`: when it is refused. */
  renewAt: number | undefined;
  /** Several requests at a time share one run. */
  private running: Promise<DatedToken> | undefined;

  constructor(
    private readonly secret: () => Promise<Secret | undefined>,
    private readonly source: TokenSource,
  ) {}

  /** The token; `fresh`: the last one was refused. Throws a {@link RelayError}. */
  async token(fresh: boolean): Promise<string | undefined> {
    const secret = await this.secret();
    if (secret === undefined) return undefined;
    if ('token' in secret) return secret.token;
    const isEnding = this.renewAt !== undefined && this.renewAt < Date.now();
    const isValid = this.current?.expires === undefined || this.current.expires > Date.now();
    const isNew = isValid && Date.now() - this.madeAt < MIN_INTERVAL_MS;
    if (this.current !== undefined && (isNew || (!fresh && !isEnding))) return this.current.token;
    try {
      return (await (this.running ?? this.run(secret))).token;
    } catch (error) {
      const { expires, token } = this.current ?? {};
      if (fresh || expires === undefined || expires < Date.now()) throw error;
      // It is valid for a while.
      return token;
    }
  }

  private run(secret: Parameters<TokenSource>[0]): Promise<DatedToken> {
    const running = this.source(secret);
    this.running = running;
    const done = (token: DatedToken | undefined) => {
      // The secret may be another one by now.
      if (this.running !== running) return;
      this.running = undefined;
      if (token !== undefined) this.keep(token);
    };
    running.then(done, () => done(undefined));
    return running;
  }

  private keep(token: DatedToken): void {
    this.current = token;
    this.madeAt = Date.now();
    const lifetime = token.expires === undefined ? undefined : token.expires - Date.now();
    this.renewAt = lifetime === undefined ? undefined : Date.now() + lifetime - Math.min(RENEWAL_MS, lifetime / 4);
  }

  /** The secret is another one. */
  forget(): void {
    this.current = this.running = this.renewAt = undefined;
    this.madeAt = 0;
  }
}

/** Runs `command` in the shell, and reads the token that it prints: alone, or as a Kubernetes credential. */
export function runTokenCommand(command: string): Promise<DatedToken> {
  const options = {
    timeout: COMMAND_TIMEOUT_MS,
    maxBuffer: MAX_OUTPUT_BYTES,
    windowsHide: true,
    // Not the folder that happens to be open.
    cwd: homedir(),
    env: { ...process.env, KUBERNETES_EXEC_INFO: EXEC_INFO },
  };
  return new Promise((resolve, reject) => {
    const child = exec(command, options, (error, output) => {
      // Its output may be a token, and its error output may quote one: neither is shown.
      if (error?.killed) return reject(new RelayError(0, 'The token command did not end in time.'));
      if (error)
        return reject(
          new RelayError(0, `The token command ended with ${error.code ?? 'an error'}. Run it in a terminal.`),
        );
      const token = parsePrinted(output);
      if (token === undefined) return reject(new RelayError(0, 'The token command printed no token.'));
      resolve(token);
    });
    // A command that asks something there would wait for ever.
    child.stdin?.end();
  });
}

/** The token in the output of a command. */
export function parsePrinted(output: string): DatedToken | undefined {
  const text = output.trim();
  if (text.startsWith('{')) {
    try {
      const { token, expirationTimestamp } = v.parse(ExecCredential, JSON.parse(text)).status;
      const expires = expirationTimestamp === undefined ? expiry(token) : Date.parse(expirationTimestamp);
      return expires === undefined || Number.isNaN(expires) ? { token } : { token, expires };
    } catch {
      return undefined;
    }
  }
  if (text === '' || /\s/.test(text)) return undefined;
  return datedToken(text);
}

/** `token` with the expiry that it names. */
export function datedToken(token: string): DatedToken {
  const expires = expiry(token);
  return expires === undefined ? { token } : { token, expires };
}

/** The expiry that a JSON Web Token names. Not verified: the relay does that. */
function expiry(token: string): number | undefined {
  try {
    const claims: unknown = JSON.parse(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString('utf8'));
    return v.parse(Claims, claims).exp * 1000;
  } catch {
    return undefined;
  }
}
