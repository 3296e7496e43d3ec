// All relays of the user.

import * as vscode from 'vscode';

import type { Secret } from './credential.js';
import { Relay } from './relay.js';
import { SavedRelays, type SavedRelay } from './saved.js';

export class Relays implements vscode.Disposable {
  private readonly byId = new Map<string, Relay>();
  private readonly emitter = new vscode.EventEmitter<void>();
  /** A relay's state or list has changed. */
  readonly onDidChange = this.emitter.event;

  constructor(private readonly saved: SavedRelays) {
    for (const one of saved.all()) this.create(one);
  }

  get all(): Relay[] {
    return [...this.byId.values()];
  }

  /** The relay of that name; without a name, the only one. */
  named(name: string | undefined): Relay | undefined {
    const all = this.all;
    if (name === undefined) return all.length === 1 ? all[0] : undefined;
    return all.find((relay) => relay.name === name);
  }

  private create(saved: SavedRelay): Relay {
    const relay = this.unsaved(saved, () => this.saved.secret(saved.id));
    this.byId.set(saved.id, relay);
    if (!saved.isOff) relay.connect();
    return relay;
  }

  /** A relay that is in no list, to be checked first. */
  unsaved(saved: SavedRelay, secret: () => Promise<Secret | undefined>): Relay {
    return new Relay(saved, secret, () => this.emitter.fire());
  }

  async add(saved: SavedRelay, secret: Secret | undefined): Promise<Relay> {
    await this.saved.putSecret(saved.id, secret);
    await this.saved.put(saved);
    return this.create(saved);
  }

  /** Keeps another secret, and connects with it. */
  async replaceSecret(relay: Relay, secret: Secret | undefined): Promise<void> {
    await this.saved.putSecret(relay.saved.id, secret);
    relay.credential.forget();
    relay.connect();
  }

  async update(relay: Relay, change: Partial<Pick<SavedRelay, 'name' | 'isOff'>>): Promise<void> {
    relay.saved = { ...relay.saved, ...change };
    await this.saved.put(relay.saved);
    if (change.isOff === true) relay.disconnect();
    else if (change.isOff === false) relay.connect();
    else this.emitter.fire();
  }

  async remove(relay: Relay): Promise<void> {
    this.byId.delete(relay.saved.id);
    relay.disconnect();
    await this.saved.remove(relay.saved.id);
  }

  dispose(): void {
    for (const relay of this.all) relay.feed?.dispose();
    this.emitter.dispose();
  }
}
