// How each row of the side bar is shown.

import * as vscode from 'vscode';

import { isFree, isParkedFor, type Breakpoint } from '../relay/breakpoint.js';
import type { Relay } from '../relay/relay.js';
import { placeText } from '../relay/saved.js';
import { briefSpan, oneLine } from '../text.js';
import { countOf, descriptionOf, labelOf, type GroupRow, type JobRow, type Row } from './rows.js';
import type { FailedRow, RunningRow, SectionName } from './section.js';

/** The key of the row with a sentence about the relay itself. */
export const STATE_KEY = '"state"';

/** A row of any kind: the relay itself, what it has paused, and its sections. */
export type NodeRow = Row | { kind: 'relay' } | { kind: 'section'; name: SectionName } | FailedRow | RunningRow;

/** A row, with the relay that it belongs to. */
export interface Node {
  relay: Relay;
  row: NodeRow;
}

const { None, Collapsed, Expanded } = vscode.TreeItemCollapsibleState;

/** The id of a row, by which VS Code keeps whether it is folded. Rows of a section have none of their own. */
export function idOf({ relay, row }: Node): string {
  const { saved, feed } = relay;
  if ('key' in row) return `${saved.id}/${row.key}`;
  if (row.kind === 'section') return `${saved.id}/section/${row.name}`;
  // A relay that is off has no rows to unfold.
  return feed === undefined ? `${saved.id}/off` : saved.id;
}

/** `hasStopped`: whether this window has stopped sessions of some of the tasks. */
export function itemOf(
  node: Node,
  hasStopped: (relay: Relay, tasks: readonly Breakpoint[]) => boolean,
): vscode.TreeItem {
  const { relay, row } = node;
  switch (row.kind) {
    case 'relay':
      return relayItem(node);
    case 'cluster': {
      const item = new vscode.TreeItem(oneLine(row.cluster.name, 100), Expanded);
      item.id = idOf(node);
      item.contextValue = 'cluster';
      item.iconPath = new vscode.ThemeIcon(row.cluster.trouble === null ? 'server' : 'warning');
      if (row.cluster.ray_version !== null) item.description = `Ray ${oneLine(row.cluster.ray_version, 40)}`;
      return item;
    }
    case 'job':
    case 'group':
      return tasksItem(node, row, hasStopped(relay, row.tasks));
    case 'task':
      return taskItem(node, row.task);
    case 'resume': {
      const count = row.tasks.length;
      const item = new vscode.TreeItem(`Resume ${count === 1 ? '1 session' : `${count} sessions`}`, None);
      item.id = idOf(node);
      item.description = 'parked for you';
      item.iconPath = new vscode.ThemeIcon('debug-alt', new vscode.ThemeColor('charts.blue'));
      item.command = { command: 'rayRelay.resume', title: 'Resume', arguments: [node] };
      return item;
    }
    case 'message': {
      const item = new vscode.TreeItem(row.text, None);
      item.id = idOf(node);
      item.tooltip = row.text;
      item.iconPath = new vscode.ThemeIcon(row.isTrouble ? 'warning' : 'info');
      if (row.key === STATE_KEY) {
        item.command = { command: 'rayRelay.diagnose', title: 'Why is nothing here?', arguments: [node] };
      }
      return item;
    }
    case 'section': {
      const item = new vscode.TreeItem(row.name === 'failed' ? 'Failed' : 'Running', Collapsed);
      item.id = idOf(node);
      item.iconPath = new vscode.ThemeIcon(row.name === 'failed' ? 'error' : 'run');
      return item;
    }
    case 'failed':
    case 'running': {
      const item = new vscode.TreeItem(row.label, None);
      item.description = row.description;
      item.tooltip = `${row.label}\n${row.description}`;
      item.contextValue = row.kind;
      if (row.kind === 'failed') {
        item.command = { command: 'rayRelay.inspectFailed', title: 'Inspect', arguments: [node] };
        item.iconPath = new vscode.ThemeIcon('error', new vscode.ThemeColor('charts.red'));
      }
      return item;
    }
  }
}

function relayItem(node: Node): vscode.TreeItem {
  const { relay } = node;
  const { feed } = relay;
  const item = new vscode.TreeItem(relay.name, feed === undefined ? None : Expanded);
  item.id = idOf(node);
  item.tooltip = placeText(relay.saved);
  item.contextValue = feed === undefined ? 'relay.off' : 'relay.on';
  const state = feed?.state;
  const isLive = state?.kind === 'live';
  item.iconPath = new vscode.ThemeIcon(
    isLive ? 'server-environment' : feed === undefined ? 'debug-disconnect' : 'warning',
  );
  if (feed === undefined || state === undefined) item.description = 'disconnected';
  else if (state.kind === 'connecting') item.description = 'connecting…';
  else if (state.kind === 'refused') item.description = 'access denied';
  else if (state.kind === 'away') item.description = `unreachable for ${briefSpan((Date.now() - state.since) / 1000)}`;
  else item.description = countOf([...feed.rows], relay.subject);
  return item;
}

function tasksItem(node: Node, row: JobRow | GroupRow, isStopped: boolean): vscode.TreeItem {
  const item = new vscode.TreeItem(row.label, Expanded);
  item.id = idOf(node);
  item.contextValue = isStopped ? `${row.kind}.stopped` : row.kind;
  item.iconPath = new vscode.ThemeIcon(row.kind === 'job' ? 'briefcase' : 'layers');
  item.description = countOf(row.tasks, node.relay.subject);
  return item;
}

function taskItem(node: Node, task: Breakpoint): vscode.TreeItem {
  const item = new vscode.TreeItem(labelOf(task), None);
  item.id = idOf(node);
  const me = node.relay.subject;
  item.description = descriptionOf(task, me, Date.now());
  const lines = [task.title, item.description, `id ${task.id}`, task.why];
  item.tooltip = lines.flatMap((line) => (line ? [oneLine(line, 500)] : [])).join('\n');
  if (task.kind === 'pdb')
    item.tooltip += `\nWith Ray's legacy debugger: \`ray-relay debug ${task.id}\` in a terminal.`;
  item.contextValue = `task.${contextOf(task, me)}`;
  const [icon, color] = iconOf(item.contextValue, task.exception !== null);
  item.iconPath = new vscode.ThemeIcon(icon, color === undefined ? undefined : new vscode.ThemeColor(color));
  return item;
}

function contextOf(task: Breakpoint, me: string | null): 'free' | 'mine' | 'held' | 'legacy' {
  if (isFree(task)) return 'free';
  if (isParkedFor(task, me)) return 'mine';
  return task.kind === 'pdb' && task.holder === null ? 'legacy' : 'held';
}

function iconOf(context: string, isFailure: boolean): [string, string?] {
  if (context === 'task.mine') return ['bookmark', 'charts.blue'];
  if (context === 'task.held') return ['lock'];
  return isFailure ? ['error', 'charts.red'] : ['debug-pause', 'charts.orange'];
}
