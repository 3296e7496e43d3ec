// One relay that the user has added, with its list while it is connected.

import { readFile } from 'node:fs/promises';

import * as v from 'valibot';

import { Credential, runTokenCommand, type DatedToken, type Secret, type TokenSource } from './credential.js';
import { Endpoint, RelayError, unreachable, type ReachedRelay } from './endpoint.js';
import { Feed } from './feed.js';
import type { KubePlace, SavedRelay } from './saved.js';
import { nullish } from './schema.js';

const MAX_CA_BYTES = 1024 * 1024;

/** Largest answer about the user. */
const MAX_WHO_BYTES = 64 * 1024;

/** The time between two requests for who the user is. */
const WHO_INTERVAL_MS = 10_000;

const WhoAmI = v.object({
  subject: nullish(v.string()),
  /** Seconds since 1970. */
  expires: nullish(v.number()),
  scopes: v.array(v.string()),
});
export type WhoAmI = v.InferOutput<typeof WhoAmI>;

export class Relay {
  feed: Feed | undefined;
  /** Who the user is there; `undefined`: not known yet. */
  me: WhoAmI | undefined;
  /** Tasks that this window releases, until they are gone from the list. */
  readonly released = new Set<string>();
  private askedWhoAt = 0;
  private reached: Promise<ReachedRelay> | undefined;
  readonly endpoint: Endpoint;
  readonly credential: Credential;

  /** `onChange` is called when its state or list has changed. */
  constructor(
    public saved: SavedRelay,
    secret: () => Promise<Secret | undefined>,
    private readonly onChange: () => void,
  ) {
    this.credential = new Credential(secret, tokenSource(saved));
    this.endpoint = new Endpoint(
      () => this.reach(),
      (fresh) => this.credential.token(fresh),
    );
  }

  private reach(): Promise<ReachedRelay> {
    // Where it is does not change; a failure is tried again.
    this.reached ??= reach(this.saved).catch((error: unknown) => {
      this.reached = undefined;
      throw unreachable(error as Error);
    });
    return this.reached;
  }

  get name(): string {
    return this.saved.name;
  }

  /** The user's name there; `null`: it is not known, or there are no names. */
  get subject(): string | null {
    return this.me?.subject ?? null;
  }

  connect(): void {
    this.disconnect();
    // The kubeconfig or the CA file may be another one.
    this.reached = undefined;
    this.feed = new Feed(this.endpoint, () => {
      if (this.feed?.state.kind === 'live' && this.me === undefined) void this.askWho();
      this.onChange();
    });
    this.onChange();
  }

  disconnect(): void {
    this.feed?.dispose();
    this.feed = undefined;
    this.me = undefined;
    this.askedWhoAt = 0;
    this.onChange();
  }

  private async askWho(): Promise<void> {
    if (Date.now() - this.askedWhoAt < WHO_INTERVAL_MS) return;
    this.askedWhoAt = Date.now();
    const { feed } = this;
    try {
      const me = await this.check();
      // The user may have changed the token meanwhile.
      if (this.feed !== feed) return;
      this.me = me;
      this.onChange();
    } catch {
      // Asked again with a later change. Only "for you" depends on it.
    }
  }

  /** Checks that a relay answers, and knows the user. Throws a {@link RelayError}. */
  async check(): Promise<WhoAmI> {
    return this.endpoint.json(WhoAmI, '/relay/v1/whoami', { maxBytes: MAX_WHO_BYTES });
  }
}

async function reach({ at, caFile }: SavedRelay): Promise<ReachedRelay> {
  const ca = caFile === undefined ? undefined : await authorities(caFile);
  if ('url' in at) return { url: new URL(at.url), options: ca === undefined ? {} : { ca } };
  const kubernetes = await import('../kubernetes/relay.js');
  return kubernetes.reach(at.kube, ca);
}

function tokenSource({ at }: SavedRelay): TokenSource {
  return async (secret) => {
    if ('command' in secret) return runTokenCommand(secret.command);
    if ('url' in at)
      throw new RelayError(0, 'The token of this relay is one of Kubernetes, and the relay is not there.');
    return kubeToken(at.kube, secret);
  };
}

async function kubeToken(place: KubePlace, secret: { kube: 'login' } | { account: string }): Promise<DatedToken> {
  const kubernetes = await import('../kubernetes/relay.js');
  const made = 'account' in secret ? kubernetes.accountToken(place, secret.account) : kubernetes.ownToken(place);
  return made.catch((error: unknown) => {
    throw unreachable(error as Error);
  });
}

async function authorities(file: string): Promise<string> {
  try {
    const ca = await readFile(file, 'utf8');
    if (ca.length > MAX_CA_BYTES || !ca.includes('-----BEGIN CERTIFICATE-----')) throw new Error('no certificate');
    return ca;
  } catch {
    throw new RelayError(0, `The file ${file} has no PEM certificate that can be read.`);
  }
}
