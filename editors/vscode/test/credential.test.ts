// Credentials: tokens, and commands that print one.

import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { Credential, parsePrinted, runTokenCommand, type Secret, type TokenSource } from '../src/relay/credential.js';
import { RelayError } from '../src/relay/endpoint.js';

const HOUR = 3600;

/** Sets the clock forward. */
function aMinuteLater(): void {
  const now = Date.now() + 60_000;
  vi.spyOn(Date, 'now').mockImplementation(() => now);
}

afterEach(() => {
  vi.restoreAllMocks();
});

const inHours = (hours: number) => Math.floor(Date.now() / 1000) + hours * HOUR;
const encoded = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url');
const jwt = (claims: unknown) => `${encoded({ alg: 'none' })}.${encoded(claims)}.c2ln`;
/** Runs commands, as for a relay that is not in Kubernetes. */
const source: TokenSource = (secret) =>
  'command' in secret ? runTokenCommand(secret.command) : Promise.reject(new Error('not a command'));
const exec = (status: unknown, kind = 'ExecCredential') => JSON.stringify({ kind, status });

describe('the output of a command', () => {
  const expires = '2030-01-02T03:04:05Z';
  const at = Date.parse(expires);
  it.each([
    ['a token', 'abc', { token: 'abc' }],
    ['a token and a line end', ' abc\r\n', { token: 'abc' }],
    ['a token with dots', 'a.b.c', { token: 'a.b.c' }],
    ['a JWT', `${jwt({ exp: 1893553445 })}\n`, { token: jwt({ exp: 1893553445 }), expires: at }],
    ['a JWT without expiry', jwt({ sub: 'a' }), { token: jwt({ sub: 'a' }) }],
    ['a JWT with an expiry that is text', jwt({ exp: '1893553445' }), { token: jwt({ exp: '1893553445' }) }],
    ['an ExecCredential', exec({ token: 'abc' }), { token: 'abc' }],
    ['one with an expiry', exec({ token: 'abc', expirationTimestamp: expires }), { token: 'abc', expires: at }],
    ['one with a bad expiry', exec({ token: 'abc', expirationTimestamp: 'soon' }), { token: 'abc' }],
    ['one with a JWT', exec({ token: jwt({ exp: 2 }) }), { token: jwt({ exp: 2 }), expires: 2000 }],
  ])('is read: %s', (_, output, expected) => {
    expect(parsePrinted(output)).toEqual(expected);
  });

  it('has the expiry of the ExecCredential before that of its JWT', () => {
    const output = exec({ token: jwt({ exp: 2 }), expirationTimestamp: expires });
    expect(parsePrinted(output)?.expires).toBe(at);
  });

  it.each([
    ['nothing', ''],
    ['blanks', ' \n\t'],
    ['two words', 'Bearer abc'],
    ['two lines', 'Please log in\nabc'],
    ['broken JSON', '{"kind": "ExecCredential"'],
    ['JSON of another kind', exec({ token: 'abc' }, 'Secret')],
    ['an ExecCredential without a token', exec({ clientCertificateData: 'x' })],
    ['an ExecCredential without a status', JSON.stringify({ kind: 'ExecCredential' })],
    ['a token that is no text', exec({ token: 5 })],
  ])('has no token: %s', (_, output) => {
    expect(parsePrinted(output)).toBeUndefined();
  });

  // The token of an ExecCredential is not checked.
  it.each(['', 'a b', 'a\r\nX-Other: b'])('has no token: an ExecCredential with the token %j', (token) => {
    expect(parsePrinted(exec({ token }))).toBeUndefined();
  });
});

describe('a credential', () => {
  it('has no token without a secret', async () => {
    const credential = new Credential(() => Promise.resolve(undefined), source);
    expect(await credential.token(false)).toBeUndefined();
    expect(await credential.token(true)).toBeUndefined();
    expect(credential.renewAt).toBeUndefined();
  });

  it('has the token that the user entered, as it is now', async () => {
    let secret: Secret = { token: 'abc' };
    const credential = new Credential(() => Promise.resolve(secret), source);
    expect(await credential.token(false)).toBe('abc');
    expect(await credential.token(true)).toBe('abc');
    secret = { token: 'def' };
    expect(await credential.token(false)).toBe('def');
    expect(credential.renewAt).toBeUndefined();
  });

  it.each<Secret>([{ kube: 'login' }, { account: 'dev' }, { command: 'print' }])(
    'asks its source for %j',
    async (secret) => {
      const asked: unknown[] = [];
      const credential = new Credential(
        () => Promise.resolve(secret),
        (given) => Promise.resolve({ token: `token${asked.push(given)}` }),
      );
      expect(await credential.token(false)).toBe('token1');
      expect(await credential.token(false)).toBe('token1');
      expect(asked).toEqual([secret]);
    },
  );
});

describe('a command', () => {
  let folder: string;
  beforeEach(() => void (folder = mkdtempSync(join(tmpdir(), 'credential-'))));
  afterEach(() => rmSync(folder, { recursive: true }));

  const runs = () => (existsSync(join(folder, 'runs')) ? readFileSync(join(folder, 'runs'), 'utf8').length : 0);

  /** A command that runs `script` in Node, and counts its runs. `run` is the number of this run. */
  function commandOf(script: string): Credential {
    const file = join(folder, 'command.cjs');
    const log = JSON.stringify(join(folder, 'runs'));
    writeFileSync(
      file,
      `const fs = require('fs'); fs.appendFileSync(${log}, 'x'); ` + `const run = fs.statSync(${log}).size; ${script}`,
    );
    return new Credential(() => Promise.resolve({ command: `"${process.execPath}" "${file}"` }), source);
  }
  const printing = (output: string) => commandOf(`console.log(${JSON.stringify(output)})`);

  it('runs when a token is needed, and again when that is refused', async () => {
    const credential = commandOf('console.log("token" + run)');
    expect(runs()).toBe(0);
    expect(await credential.token(false)).toBe('token1');
    expect(await credential.token(false)).toBe('token1');
    // A command may ask the user to log in: not again within seconds.
    expect(await credential.token(true)).toBe('token1');
    aMinuteLater();
    expect(await credential.token(true)).toBe('token2');
    expect(await credential.token(false)).toBe('token2');
    expect(runs()).toBe(2);
  });

  it('runs again when the secret is another one', async () => {
    const credential = commandOf('console.log("token" + run)');
    await credential.token(false);
    credential.forget();
    expect(credential.renewAt).toBeUndefined();
    expect(await credential.token(false)).toBe('token2');
  });

  it.each([
    ['does not run again for a token with an hour left', inHours(1), 1],
    ['runs again for a token that has expired', inHours(-1), 2],
  ])('%s', async (_, exp, expected) => {
    const credential = printing(jwt({ exp }));
    await credential.token(false);
    await credential.token(false);
    expect(runs()).toBe(expected);
  });

  // Both see that there is no token before one of them has started the command.
  it('runs once for two requests at a time', async () => {
    const credential = commandOf('console.log("token" + run)');
    await Promise.all([credential.token(false), credential.token(false)]);
    expect(runs()).toBe(1);
  });

  it('runs once for two requests whose token was refused', async () => {
    const credential = commandOf('console.log("token" + run)');
    await credential.token(false);
    aMinuteLater();
    await Promise.all([credential.token(true), credential.token(true)]);
    expect(runs()).toBe(2);
  });

  it('runs again after it has failed', async () => {
    const credential = commandOf('if (run === 1) process.exit(3); console.log("token" + run)');
    await expect(credential.token(false)).rejects.toThrow('ended with 3');
    expect(credential.renewAt).toBeUndefined();
    expect(await credential.token(false)).toBe('token2');
  });

  it('knows what Kubernetes expects of it', async () => {
    const credential = commandOf('console.log(JSON.parse(process.env.KUBERNETES_EXEC_INFO).kind)');
    expect(await credential.token(false)).toBe('ExecCredential');
  });

  it.each([
    ['fails', 'console.log("s3cret"); console.error("s3cret"); process.exit(3)', 'ended with 3. Run'],
    ['prints two words', 'console.log("Bearer s3cret")', 'printed no token'],
    ['prints other JSON', 'console.log(JSON.stringify({ token: "s3cret" }))', 'printed no token'],
    ['prints nothing', 'console.error("s3cret")', 'printed no token'],
    ['prints too much', 'console.log("s3cret".repeat(20000))', 'MAXBUFFER'],
    ['is killed', 'console.log("s3cret"); process.kill(process.pid, "SIGKILL")', 'ended with'],
  ])('that %s shows no token in the error', async (_, script, expected) => {
    const error: unknown = await commandOf(`/* s3cret */ ${script}`)
      .token(false)
      .catch((error: unknown) => error);
    expect(error).toBeInstanceOf(RelayError);
    expect((error as Error).message).toContain(expected);
    expect(`${(error as Error).message} ${JSON.stringify(error)}`).not.toMatch(/s3cret|command\.cjs/);
  });
});
