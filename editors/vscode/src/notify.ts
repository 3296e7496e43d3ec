// Notifications. VS Code makes links of what they say, so no text of a relay gets there by another way.

import * as vscode from 'vscode';

import { oneLine, withoutLinks } from './text.js';

const MAX_NOTICE = 600;

const shown = (text: string) => withoutLinks(oneLine(text, MAX_NOTICE));

/** Shows an error with buttons; returns the one that is pressed. */
export function showError(error: unknown, ...buttons: string[]): Thenable<string | undefined> {
  return vscode.window.showErrorMessage(shown(error instanceof Error ? error.message : String(error)), ...buttons);
}

/** Shows a notice with buttons; returns the one that is pressed. */
export function showNotice(text: string, ...buttons: string[]): Thenable<string | undefined> {
  return vscode.window.showInformationMessage(shown(text), ...buttons);
}

/** Asks before something that cannot be undone; `button` is what it is. */
export async function confirmed(question: string, detail: string, button: string): Promise<boolean> {
  const options = { modal: true, detail: withoutLinks(detail) };
  return (await vscode.window.showWarningMessage(shown(question), options, button)) === button;
}

/** Runs `run` with a notification that says `title`, where it takes longer than a moment. */
export function progress<T>(title: string, run: () => Promise<T>): Promise<T> {
  const options = { location: vscode.ProgressLocation.Notification, title: shown(title) };
  return Promise.resolve(vscode.window.withProgress(options, () => run()));
}
