// What a user changes about a relay that was added.

import * as vscode from 'vscode';

import type { Relay } from '../relay/relay.js';
import type { Relays } from '../relay/relays.js';
import { confirmed } from '../notify.js';
import { askSecret } from './secret.js';

/** Asks for another credential of `relay`. */
export async function changeToken(relays: Relays, relay: Relay): Promise<void> {
  const secret = await askSecret(relay.saved);
  if (secret !== undefined) await relays.replaceSecret(relay, secret);
}

export async function renameRelay(relays: Relays, relay: Relay): Promise<void> {
  const name = await vscode.window.showInputBox({
    title: `Rename ${relay.name}`,
    value: relay.name,
    prompt: 'launch.json names a relay by this: "relay"',
    validateInput: (name) => {
      if (name.trim() === '') return 'Enter a name.';
      const other = relays.named(name.trim());
      return other !== undefined && other !== relay ? 'Another relay has this name.' : undefined;
    },
  });
  if (name !== undefined) await relays.update(relay, { name: name.trim() });
}

export async function removeRelay(relays: Relays, relay: Relay): Promise<void> {
  const detail = 'Its address and token are forgotten. Sessions that are open stay open.';
  if (await confirmed(`Remove ${relay.name}?`, detail, 'Remove')) await relays.remove(relay);
}

/** The relay that the user means: the only one, or the one that they choose. */
export async function chooseRelay(relays: Relays): Promise<Relay | undefined> {
  const { all } = relays;
  if (all.length === 0) throw new Error('There is no relay yet: open the view "Ray" and add one.');
  if (all.length === 1) return all[0];
  const items = all.map((relay) => ({ label: relay.name, relay }));
  return (await vscode.window.showQuickPick(items, { title: 'Which relay?' }))?.relay;
}
