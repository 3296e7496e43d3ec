// What VS Code starts: the relays, the view "Ray", and debug sessions of type "ray-relay".

import * as vscode from 'vscode';

import { addRelay } from './commands/add.js';
import { convertConfigurations } from './commands/convert.js';
import { diagnose } from './commands/diagnose.js';
import { Notices } from './commands/notices.js';
import { showError } from './notify.js';
import { changeToken, chooseRelay, removeRelay, renameRelay } from './commands/relays.js';
import { resumeAll } from './commands/step.js';
import {
  attach,
  attachAll,
  attachCluster,
  attachTasks,
  compare,
  copyLink,
  explainHang,
  inspect,
  inspectFailed,
  park,
  release,
  stopRunning,
} from './commands/tasks.js';
import { DEBUG_TYPE } from './dap/configuration.js';
import { DebugSessions } from './dap/sessions.js';
import { isFree, isParkedFor, type Breakpoint } from './relay/breakpoint.js';
import type { Relay } from './relay/relay.js';
import { Relays } from './relay/relays.js';
import { SavedRelays } from './relay/saved.js';
import { SnapshotDocuments, SCHEME } from './view/documents.js';
import type { Node } from './view/items.js';
import type { GroupRow, JobRow } from './view/rows.js';
import { StatusBar } from './view/status.js';
import { TaskTree } from './view/tree.js';

let sessions: DebugSessions | undefined;

export function activate(context: vscode.ExtensionContext): void {
  const relays = new Relays(new SavedRelays(context.globalState, context.secrets));
  const documents = new SnapshotDocuments();
  // In a window on another machine the files are there, and this may run here.
  const runsApart = vscode.env.remoteName !== undefined && context.extension.extensionKind === vscode.ExtensionKind.UI;
  const debug = new DebugSessions(relays, context.storageUri?.toString(), !runsApart, () => tree.redraw());
  sessions = debug;
  const tree: TaskTree = new TaskTree(relays, (relay, tasks) => debug.stoppedIn(relay, tasks).length > 0);
  tree.view = vscode.window.createTreeView('rayRelay.tasks', { treeDataProvider: tree, showCollapseAll: true });
  context.subscriptions.push(
    relays,
    tree,
    tree.view,
    tree.view.onDidChangeVisibility(() => tree.redraw()),
    debug,
    new StatusBar(relays),
    new Notices(relays),
    relays.onDidChange(() => tree.redraw()),
    vscode.workspace.registerTextDocumentContentProvider(SCHEME, documents),
    vscode.debug.registerDebugAdapterDescriptorFactory(DEBUG_TYPE, debug),
    vscode.debug.registerDebugConfigurationProvider(DEBUG_TYPE, debug),
    ...commands(relays, tree, documents, debug),
  );
}

/** VS Code waits for this at most two seconds: the relays are notified that their sessions have ended. */
export function deactivate(): Promise<void> | undefined {
  return sessions?.leave();
}

function commands(
  relays: Relays,
  tree: TaskTree,
  documents: SnapshotDocuments,
  debug: DebugSessions,
): vscode.Disposable[] {
  const ofNode = (run: (node: Node) => unknown) => (node: Node | undefined) => node && run(node);
  const ofTask = (run: (relay: Relay, task: Breakpoint) => unknown) =>
    ofNode(({ relay, row }) => row.kind === 'task' && run(relay, row.task));
  const ofTasks = (run: (relay: Relay, row: JobRow | GroupRow) => unknown) =>
    ofNode(({ relay, row }) => (row.kind === 'job' || row.kind === 'group') && run(relay, row));
  const handlers: Record<string, (...given: never[]) => unknown> = {
    addRelay: () => addRelay(relays),
    changeToken: ofNode(({ relay }) => changeToken(relays, relay)),
    renameRelay: ofNode(({ relay }) => renameRelay(relays, relay)),
    removeRelay: ofNode(({ relay }) => removeRelay(relays, relay)),
    diagnose: async (node: Node | undefined) => {
      // From the command palette there is no row.
      const relay = node?.relay ?? (await chooseRelay(relays));
      if (relay !== undefined) await diagnose(relay, documents);
    },
    connectRelay: ofNode(({ relay }) => relays.update(relay, { isOff: false })),
    disconnectRelay: ofNode(({ relay }) => relays.update(relay, { isOff: true })),
    attach: ofTask(attach),
    attachAll: ofNode(({ relay, row }) => {
      if (row.kind === 'relay') return attachCluster(relay, undefined);
      if (row.kind === 'cluster') return attachCluster(relay, row.cluster.name);
      return (row.kind === 'job' || row.kind === 'group') && attachAll(relay, row);
    }),
    continueAll: ofTasks((relay, row) => resumeAll(debug, relay, row, 'continue')),
    stepAll: ofTasks((relay, row) => resumeAll(debug, relay, row, 'next')),
    compare: ofTasks(compare),
    resume: ofNode(({ relay, row }) => row.kind === 'resume' && attachTasks(relay, row.tasks)),
    inspect: ofTask((relay, task) => inspect(relay, task, documents)),
    inspectFailed: ofNode(({ relay, row }) => row.kind === 'failed' && inspectFailed(relay, row.task, documents)),
    stopRunning: ofNode(({ relay, row }) => row.kind === 'running' && stopRunning(relay, row.task)),
    explainHang: ofNode(({ relay, row }) => row.kind === 'running' && explainHang(relay, row.task, documents)),
    park: ofNode(({ relay, row }) => {
      if (row.kind === 'task') return park(relay, [row.task]);
      const mayPark = (task: Breakpoint) => isFree(task) || isParkedFor(task, relay.subject);
      return (row.kind === 'job' || row.kind === 'group') && park(relay, row.tasks.filter(mayPark));
    }),
    release: ofNode(({ relay, row }) => {
      if (row.kind === 'task') return release(relay, [row.task]);
      return (row.kind === 'job' || row.kind === 'group') && release(relay, row.tasks);
    }),
    copyLink: ofTask(copyLink),
    convertConfigurations: () => convertConfigurations(relays),
    suspend: () => vscode.commands.executeCommand('workbench.action.debug.disconnectAndSuspend'),
    filter: async () => {
      const words = await vscode.window.showInputBox({
        title: 'Filter the tasks',
        value: tree.filter,
        placeHolder: 'name, file:line, node, rank 3, user or id',
      });
      if (words !== undefined) tree.filter = words;
    },
    clearFilter: () => {
      tree.filter = '';
    },
  };
  return Object.entries(handlers).map(([name, run]) =>
    vscode.commands.registerCommand(`rayRelay.${name}`, async (...given: never[]) => {
      try {
        await run(...given);
      } catch (error) {
        // VS Code shows one line of an error without a button.
        void showError(error, 'OK');
      }
    }),
  );
}
