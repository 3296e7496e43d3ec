// Adding a relay.

import * as vscode from 'vscode';

import { addressText, BadAddress, parseAddress } from '../relay/address.js';
import type { Secret } from '../relay/credential.js';
import { RelayError } from '../relay/endpoint.js';
import type { Relays } from '../relay/relays.js';
import { SavedRelays, type KubePlace, type SavedRelay } from '../relay/saved.js';
import { askSecret } from './secret.js';
import { progress, showError } from '../notify.js';

/** A place that is chosen, and how the relay there is called at first. */
interface ChosenPlace {
  at: SavedRelay['at'];
  name: string;
}

/** Asks for a relay, checks that it answers, and keeps it. */
/** The name of a namespace of Kubernetes. */
const NAMESPACE = /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/;

export async function addRelay(relays: Relays): Promise<void> {
  const address = { label: '$(globe) At an address', description: 'https://… or HOST:PORT' };
  const kubernetes = { label: '$(symbol-method) In Kubernetes', description: 'through your kubeconfig' };
  const choice = await vscode.window.showQuickPick([address, kubernetes], { title: 'Add a relay. Where is it?' });
  const chosen = choice === address ? await askAddress() : choice === kubernetes ? await askKubernetes() : undefined;
  if (chosen === undefined) return;
  const saved: SavedRelay = {
    id: SavedRelays.newId(),
    name: freeName(relays, chosen.name),
    at: chosen.at,
    isOff: false,
  };
  let secret: Secret | undefined;
  for (;;) {
    try {
      await progress(`Asking ${saved.name}`, () => relays.unsaved(saved, () => Promise.resolve(secret)).check());
      break;
    } catch (error) {
      const next = await nextStep(error, saved, secret);
      if (next === undefined) return;
      if (next !== 'again') secret = next;
    }
  }
  await relays.add(saved, secret);
}

async function askAddress(): Promise<ChosenPlace | undefined> {
  const text = await vscode.window.showInputBox({
    title: 'Add a relay',
    prompt: 'The address of the relay',
    placeHolder: 'https://relay.example.com or 127.0.0.1:5678',
    ignoreFocusOut: true,
    validateInput: addressProblem,
  });
  if (text === undefined || text.trim() === '') return undefined;
  const url = parseAddress(text);
  return { at: { url: addressText(url) }, name: url.host };
}

function addressProblem(text: string): string | undefined {
  if (text.trim() === '') return undefined;
  try {
    parseAddress(text);
    return undefined;
  } catch (error) {
    return error instanceof BadAddress ? error.message : String(error);
  }
}

async function askKubernetes(): Promise<ChosenPlace | undefined> {
  const kubernetes = await import('../kubernetes/relay.js');
  const items = kubernetes.contexts().map(({ name, namespace, cluster }) => {
    return { label: name, description: `cluster ${cluster}, namespace ${namespace}`, namespace };
  });
  if (items.length === 0) throw new RelayError(0, 'The kubeconfig has no context.');
  const title = 'Which context?';
  const context = items.length === 1 ? items[0] : await vscode.window.showQuickPick(items, { title });
  if (context === undefined) return undefined;
  const search = (namespace: string) =>
    progress(`Looking for relays in ${context.label}`, () => kubernetes.relaysIn(context.label, namespace));
  let problem = `There is no relay in the namespace ${context.namespace}`;
  let found = await search(context.namespace).catch((error: unknown) => {
    // Who may not list Services there may do so in another namespace.
    if (!(error instanceof Error && 'isForbidden' in error && error.isForbidden === true)) throw error;
    problem = `You may not list Services in the namespace ${context.namespace}`;
    return [];
  });
  if (found.length === 0) {
    const namespace = await vscode.window.showInputBox({
      title: 'In which namespace is the relay?',
      prompt: `${problem}. The operator of the relay knows where it is.`,
      ignoreFocusOut: true,
      validateInput: (text) => (NAMESPACE.test(text.trim()) ? undefined : 'Lower-case letters, digits and hyphens.'),
    });
    if (namespace === undefined) return undefined;
    found = await search(namespace.trim());
    if (found.length === 0) {
      const label = 'app.kubernetes.io/name=ray-relay';
      throw new RelayError(0, `There is no relay in ${namespace.trim()}: no Service with the label ${label}.`);
    }
  }
  const place = await chooseService(found);
  return place && { at: { kube: place }, name: `${place.namespace}/${place.service}` };
}

async function chooseService(found: KubePlace[]): Promise<KubePlace | undefined> {
  if (found.length === 1) return found[0];
  const items = found.map((place) => ({ label: place.service, description: `namespace ${place.namespace}`, place }));
  return (await vscode.window.showQuickPick(items, { title: 'Which relay?' }))?.place;
}

/** What to do about `error`: another credential, or `'again'`. `undefined`: give up. */
async function nextStep(
  error: unknown,
  saved: SavedRelay,
  secret: Secret | undefined,
): Promise<Secret | 'again' | undefined> {
  const isRefused = error instanceof RelayError && [401, 403].includes(error.status);
  if (isRefused && secret === undefined) return askSecret(saved);
  const message = error instanceof Error ? error.message : String(error);
  const isUntrusted = /certificate is (self-signed|signed by)/.test(message);
  const choices = [
    ...(isRefused || secret !== undefined ? ['Another token'] : []),
    ...(isUntrusted ? ['Choose CA File…'] : []),
    'Try again',
  ];
  const choice = await showError(message, ...choices);
  if (choice === 'Another token') return askSecret(saved);
  if (choice === 'Choose CA File…') {
    const options = { title: 'PEM file of the certificate authority', openLabel: 'Trust' };
    const [file] = (await vscode.window.showOpenDialog(options)) ?? [];
    if (file === undefined) return undefined;
    saved.caFile = file.fsPath;
    return 'again';
  }
  return choice === 'Try again' ? 'again' : undefined;
}

function freeName(relays: Relays, host: string): string {
  let name = host;
  for (let count = 2; relays.all.some((relay) => relay.name === name); count += 1) name = `${host} ${count}`;
  return name;
}
