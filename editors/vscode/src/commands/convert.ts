// Converting the configurations of a launch.json, which the user asks for and confirms.

import * as vscode from 'vscode';

import { converted } from '../dap/conversion.js';
import type { Relays } from '../relay/relays.js';
import { confirmed, showNotice } from '../notify.js';
import { chooseRelay } from './relays.js';

/** Converts the configurations of type "debugpy" that lead to a relay, in the launch.json of the open folder. */
export async function convertConfigurations(relays: Relays): Promise<void> {
  const folder = vscode.workspace.workspaceFolders?.[0];
  const launch = vscode.workspace.getConfiguration('launch', folder);
  const all = launch.get<unknown[]>('configurations', []);
  const relay = await chooseRelay(relays);
  if (relay === undefined) return;
  // With one relay the name is not needed.
  const name = relays.all.length === 1 ? undefined : relay.name;
  const pairs = all.map((one) => ({ one, changed: converted(one, name) }));
  const names = pairs.flatMap(({ changed }) => changed?.name ?? []);
  if (names.length === 0) {
    void showNotice('launch.json has no configuration of type "debugpy" with "rayRelay".');
    return;
  }
  const detail = `In launch.json: ${names.join(', ')}. The token and the address are taken out: they are those of ${relay.name}.`;
  const question = names.length === 1 ? 'Convert 1 configuration?' : `Convert ${names.length} configurations?`;
  if (!(await confirmed(question, detail, 'Convert'))) return;
  const next = pairs.map(({ one, changed }) => changed ?? one);
  const target =
    folder === undefined ? vscode.ConfigurationTarget.Workspace : vscode.ConfigurationTarget.WorkspaceFolder;
  await launch.update('configurations', next, target);
}
