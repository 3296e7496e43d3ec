// Asking who the user is.

import * as vscode from 'vscode';

import type { Secret } from '../relay/credential.js';
import type { SavedRelay } from '../relay/saved.js';
import { isPlain } from '../relay/address.js';
import { oneLine } from '../text.js';
import { confirmed } from '../notify.js';

const CHOICES = [
  { source: 'token', label: 'Enter a token', description: 'kept in the secret storage of this machine' },
  {
    source: 'command',
    label: 'Run a command that prints a token',
    description: 'runs in your shell when a token is needed',
  },
] as const;

const IN_KUBERNETES = [
  { source: 'account', label: 'A token of a ServiceAccount', description: 'made for the relay, and renewed in time' },
  { source: 'login', label: 'Your Kubernetes login', description: 'the relay receives your token' },
] as const;

const PLAIN_QUESTION = 'Send a token without encryption?';
const PLAIN_DETAIL =
  'The address begins with http, so everyone between you and the relay can read the token. Write https where the relay has a certificate.';

/** Asks for a credential; a relay in Kubernetes may take one of the cluster's. */
export async function askSecret({ at, name }: Pick<SavedRelay, 'at' | 'name'>): Promise<Secret | undefined> {
  const isInKubernetes = 'kube' in at;
  if (!isInKubernetes && isPlain(new URL(at.url)) && !(await confirmed(PLAIN_QUESTION, PLAIN_DETAIL, 'Continue'))) {
    return undefined;
  }
  const choices = isInKubernetes ? [...CHOICES, ...IN_KUBERNETES] : CHOICES;
  const title = `${oneLine(name, 80)} requires authentication`;
  const choice = await vscode.window.showQuickPick(choices, { title, ignoreFocusOut: true });
  if (choice === undefined) return undefined;
  if (choice.source === 'login') {
    const question = `Send the token of your login to ${oneLine(name, 80)}?`;
    const detail =
      'With this token the relay can do everything that you can do in the cluster. Send it only to a relay that you trust.';
    return (await confirmed(question, detail, 'Send')) ? { kube: 'login' } : undefined;
  }
  const isToken = choice.source === 'token';
  const text = await vscode.window.showInputBox({
    title: choice.label,
    password: isToken,
    ignoreFocusOut: true,
    placeHolder: { token: undefined, command: 'my-login token', account: 'NAMESPACE/NAME' }[choice.source],
    validateInput: (text) => (choice.source !== 'command' && /\s/.test(text.trim()) ? 'It has no spaces.' : undefined),
  });
  const entered = text?.trim() ?? '';
  if (entered === '') return undefined;
  if (isToken) return { token: entered };
  return choice.source === 'command' ? { command: entered } : { account: entered };
}
