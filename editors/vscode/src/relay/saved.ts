// The relays that a user has added: what is kept between starts. Never in settings, which a folder can bring along.

import { randomBytes } from 'node:crypto';

import * as v from 'valibot';
import type { Memento, SecretStorage } from 'vscode';

import { Secret } from './credential.js';

const STATE_KEY = 'rayRelay.relays';

/** Most relays that are kept. */
const MAX_RELAYS = 100;

/** Where a relay is in Kubernetes. */
const KubePlace = v.object({ context: v.string(), namespace: v.string(), service: v.string() });
export type KubePlace = v.InferOutput<typeof KubePlace>;

export const SavedRelay = v.object({
  id: v.pipe(v.string(), v.regex(/^[0-9a-f]{16}$/)),
  /** How the user calls it; `relay` in a debug configuration. */
  name: v.string(),
  at: v.union([v.object({ url: v.pipe(v.string(), v.url()) }), v.object({ kube: KubePlace })]),
  /** PEM file of the authorities to trust. */
  caFile: v.optional(v.string()),
  /** Disconnected by the user. */
  isOff: v.fallback(v.boolean(), false),
});
export type SavedRelay = v.InferOutput<typeof SavedRelay>;

/** Where `relay` is, for people. */
export function placeText({ at }: SavedRelay): string {
  if ('url' in at) return at.url;
  const { context, namespace, service } = at.kube;
  return `Service ${service} in namespace ${namespace} (context ${context})`;
}

export class SavedRelays {
  constructor(
    private readonly state: Memento,
    private readonly secrets: SecretStorage,
  ) {}

  all(): SavedRelay[] {
    const stored = this.state.get<unknown[]>(STATE_KEY, []);
    return stored.filter((one): one is SavedRelay => v.is(SavedRelay, one)).slice(0, MAX_RELAYS);
  }

  static newId(): string {
    return randomBytes(8).toString('hex');
  }

  async put(relay: SavedRelay): Promise<void> {
    const others = this.all();
    const at = others.findIndex((one) => one.id === relay.id);
    if (at < 0) others.push(relay);
    else others[at] = relay;
    await this.state.update(STATE_KEY, others);
  }

  async remove(id: string): Promise<void> {
    await this.state.update(
      STATE_KEY,
      this.all().filter((one) => one.id !== id),
    );
    await this.putSecret(id, undefined);
  }

  async secret(id: string): Promise<Secret | undefined> {
    const stored = await this.secrets.get(`rayRelay.${id}`);
    if (stored === undefined) return undefined;
    try {
      return v.parse(Secret, JSON.parse(stored));
    } catch {
      return undefined;
    }
  }

  async putSecret(id: string, secret: Secret | undefined): Promise<void> {
    if (secret === undefined) await this.secrets.delete(`rayRelay.${id}`);
    else await this.secrets.store(`rayRelay.${id}`, JSON.stringify(secret));
  }
}
