// When a token that a command or Kubernetes has made is replaced.

import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { Credential } from '../src/relay/credential.js';

describe('the renewal of a token', () => {
  const NOW = 1_800_000_000_000;
  const MINUTE = 60_000;
  let asked: number;
  beforeEach(() => {
    asked = 0;
    vi.useFakeTimers({ now: NOW, toFake: ['Date'] });
  });
  afterEach(() => void vi.useRealTimers());

  /** A credential whose tokens live for `lifetime` milliseconds. */
  const living = (lifetime: number | undefined) =>
    new Credential(
      () => Promise.resolve({ kube: 'login' }),
      () => {
        const token = `token${(asked += 1)}`;
        return Promise.resolve(lifetime === undefined ? { token } : { token, expires: Date.now() + lifetime });
      },
    );

  it.each([
    ['a minute before the expiry of a long token', 60 * MINUTE, 59 * MINUTE],
    ['a minute before the expiry of a token of four minutes', 4 * MINUTE, 3 * MINUTE],
    ['a quarter before the expiry of a token of two minutes', 2 * MINUTE, 1.5 * MINUTE],
    ['a quarter before the expiry of a token of half a minute', MINUTE / 2, (3 * MINUTE) / 8],
  ])('is %s', async (_, lifetime, renewal) => {
    const credential = living(lifetime);
    expect(await credential.token(false)).toBe('token1');
    expect(credential.renewAt).toBe(NOW + renewal);
    vi.setSystemTime(NOW + renewal - 1);
    expect(await credential.token(false)).toBe('token1');
    vi.setSystemTime(NOW + renewal + 1);
    expect(await credential.token(false)).toBe('token2');
    expect(credential.renewAt).toBe(NOW + renewal + 1 + renewal);
  });

  it('is at once for a token that has expired', async () => {
    const credential = living(-MINUTE);
    await credential.token(false);
    expect(credential.renewAt).toBeLessThan(NOW);
    expect(await credential.token(false)).toBe('token2');
  });

  it('is only when it is refused for a token without an expiry', async () => {
    const credential = living(undefined);
    await credential.token(false);
    expect(credential.renewAt).toBeUndefined();
    vi.setSystemTime(NOW + 10_000 * MINUTE);
    expect(await credential.token(false)).toBe('token1');
    expect(await credential.token(true)).toBe('token2');
  });

  it('is not that of a secret that was replaced meanwhile', async () => {
    const answers: ((token: string) => void)[] = [];
    const credential = new Credential(
      () => Promise.resolve({ kube: 'login' }),
      () => new Promise((resolve) => answers.push((token) => resolve({ token, expires: NOW + MINUTE }))),
    );
    const old = credential.token(false);
    await vi.waitFor(() => expect(answers).toHaveLength(1));
    credential.forget();
    answers[0]?.('old');
    expect(await old).toBe('old');
    expect(credential.renewAt).toBeUndefined();
    const next = credential.token(false);
    await vi.waitFor(() => expect(answers).toHaveLength(2));
    answers[1]?.('new');
    expect(await next).toBe('new');
  });
});
