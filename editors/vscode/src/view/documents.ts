// Read-only documents with the snapshots of tasks.

import * as vscode from 'vscode';

import { forgetOldest } from '../bounded.js';
import { CURRENT_LINE } from './snapshot.js';

export const SCHEME = 'ray-relay-snapshot';

/** Most texts that are kept. */
const MAX_DOCUMENTS = 50;

export class SnapshotDocuments implements vscode.TextDocumentContentProvider {
  private readonly texts = new Map<string, string>();
  private readonly emitter = new vscode.EventEmitter<vscode.Uri>();
  readonly onDidChange = this.emitter.event;
  private readonly currentLine = vscode.window.createTextEditorDecorationType({
    isWholeLine: true,
    backgroundColor: new vscode.ThemeColor('editor.stackFrameHighlightBackground'),
  });

  provideTextDocumentContent(uri: vscode.Uri): string {
    return this.texts.get(uri.toString()) ?? 'This is no longer kept. Inspect the task again from the view "Ray".';
  }

  /** Opens `text` as a document called `name`, in place of an earlier one of the same `id`. */
  async show(id: string, name: string, text: string): Promise<void> {
    const uri = vscode.Uri.from({ scheme: SCHEME, path: `/${name.replaceAll('/', '-')}`, query: id });
    this.texts.delete(uri.toString());
    this.texts.set(uri.toString(), text);
    forgetOldest(this.texts, MAX_DOCUMENTS);
    this.emitter.fire(uri);
    const document = await vscode.workspace.openTextDocument(uri);
    const editor = await vscode.window.showTextDocument(document, { preview: true });
    const current = text.split('\n').flatMap((line, at) => (line.startsWith(CURRENT_LINE) ? [at] : []));
    editor.setDecorations(
      this.currentLine,
      current.map((at) => document.lineAt(at).range),
    );
  }
}
