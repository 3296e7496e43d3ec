// The tree of the side bar.

import * as vscode from 'vscode';

import { isFree, isParkedFor, type Breakpoint } from '../relay/breakpoint.js';
import type { Relay } from '../relay/relay.js';
import type { Relays } from '../relay/relays.js';
import { placeText } from '../relay/saved.js';
import { briefSpan, oneLine } from '../text.js';
import { Section, type SectionName, type SectionRow } from './section.js';
import { countOf, descriptionOf, labelOf, rowsOf, type Row } from './rows.js';

/** The row with a sentence about the relay itself. */
const STATE_KEY = '"state"';

/** At most so often the tree is drawn anew. */
const REDRAW_INTERVAL_MS = 300;

/** How often ages are drawn anew. */
const AGES_INTERVAL_MS = 15_000;

/** A row, with the relay that it belongs to; without a row it is the relay itself. */
export interface Node {
  relay: Relay;
  row?: Row;
  section?: SectionName;
  /** A row of a section. */
  inSection?: SectionRow;
}

export class TaskTree implements vscode.TreeDataProvider<Node>, vscode.Disposable {
  private readonly emitter = new vscode.EventEmitter<void>();
  readonly onDidChangeTreeData = this.emitter.event;
  private timer: NodeJS.Timeout | undefined;
  private readonly ages: NodeJS.Timeout;
  private readonly sections = new Map<string, Section>();
  private words = '';
  view: vscode.TreeView<Node> | undefined;

  constructor(private readonly relays: Relays) {
    this.ages = setInterval(() => this.view?.visible && this.redraw(), AGES_INTERVAL_MS);
  }

  get filter(): string {
    return this.words;
  }

  set filter(words: string) {
    this.words = words.trim();
    if (this.view !== undefined) this.view.message = this.words === '' ? undefined : `Filter: ${this.words}`;
    void vscode.commands.executeCommand('setContext', 'rayRelay.isFiltered', this.words !== '');
    this.redraw();
  }

  redraw(): void {
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      this.emitter.fire();
    }, REDRAW_INTERVAL_MS);
  }

  getChildren(node?: Node): Node[] | Promise<Node[]> {
    if (node?.section !== undefined) return this.rowsOfSection(node.relay, node.section);
    if (node === undefined) return this.relays.all.map((relay) => ({ relay }));
    if (node.row === undefined) return this.childrenOf(node.relay);
    if (!('children' in node.row)) return [];
    return node.row.children.map((row) => ({ relay: node.relay, row }));
  }

  private childrenOf(relay: Relay): Node[] {
    const rows: Node[] = this.rowsOfRelay(relay).map((row) => ({ relay, row }));
    const isLive = relay.feed?.state.kind === 'live';
    return isLive ? [...rows, { relay, section: 'failed' }, { relay, section: 'running' }] : rows;
  }

  private async rowsOfSection(relay: Relay, name: SectionName): Promise<Node[]> {
    const key = `${relay.saved.id}/${name}`;
    const section = this.sections.get(key) ?? new Section(relay.endpoint, name);
    this.sections.set(key, section);
    const rows = await section.read(Date.now());
    return rows.map((inSection) => ({ relay, inSection }));
  }

  private rowsOfRelay(relay: Relay): Row[] {
    const { feed } = relay;
    if (feed === undefined) return [];
    const rows = rowsOf(feed.clusters, feed.rows, this.words);
    const me = relay.subject;
    const parked = [...feed.rows].filter((task) => isParkedFor(task, me));
    if (parked.length > 0) rows.unshift({ kind: 'resume', key: '"resume"', tasks: parked });
    const text = emptyText(relay, rows.length === 0);
    return text === undefined ? rows : [{ kind: 'message', key: STATE_KEY, ...text }, ...rows];
  }

  getTreeItem({ relay, row, section, inSection }: Node): vscode.TreeItem {
    if (section !== undefined) return sectionItem(relay, section);
    if (inSection !== undefined) return sectionRowItem(relay, inSection);
    if (row === undefined) return relayItem(relay);
    const item = itemOf(relay, row);
    item.id = `${relay.saved.id}/${row.key}`;
    return item;
  }

  dispose(): void {
    clearInterval(this.ages);
    clearTimeout(this.timer);
    this.emitter.dispose();
  }
}

/** The sentence in place of rows, or above them. */
function emptyText(relay: Relay, isEmpty: boolean): { text: string; isTrouble: boolean } | undefined {
  const state = relay.feed?.state;
  if (state?.kind === 'refused') return { text: `${state.why} Click to see what to do.`, isTrouble: true };
  if (state?.kind === 'away') return { text: `${state.why} Trying again.`, isTrouble: true };
  if (state?.kind === 'live' && isEmpty) {
    return { text: 'Nothing is paused. Click to see why.', isTrouble: false };
  }
  return undefined;
}

function relayItem(relay: Relay): vscode.TreeItem {
  const { feed } = relay;
  const open = feed === undefined ? vscode.TreeItemCollapsibleState.None : vscode.TreeItemCollapsibleState.Expanded;
  const item = new vscode.TreeItem(relay.name, open);
  item.id = `${relay.saved.id}${feed === undefined ? '/off' : ''}`;
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

function itemOf(relay: Relay, row: Row): vscode.TreeItem {
  const { Expanded, None } = vscode.TreeItemCollapsibleState;
  switch (row.kind) {
    case 'cluster': {
      const item = new vscode.TreeItem(oneLine(row.cluster.name, 100), Expanded);
      item.contextValue = 'cluster';
      item.iconPath = new vscode.ThemeIcon(row.cluster.trouble === null ? 'server' : 'warning');
      if (row.cluster.ray_version !== null) item.description = `Ray ${oneLine(row.cluster.ray_version, 40)}`;
      return item;
    }
    case 'job':
    case 'group': {
      const item = new vscode.TreeItem(row.label, Expanded);
      item.contextValue = row.kind === 'job' && row.job === undefined ? 'unknown' : row.kind;
      item.iconPath = new vscode.ThemeIcon(row.kind === 'job' ? 'briefcase' : 'layers');
      item.description = countOf(row.tasks, relay.subject);
      return item;
    }
    case 'task':
      return taskItem(relay, row.task);
    case 'resume': {
      const count = row.tasks.length;
      const item = new vscode.TreeItem(`Resume ${count === 1 ? '1 session' : `${count} sessions`}`, None);
      item.description = 'parked for you';
      item.iconPath = new vscode.ThemeIcon('debug-continue', new vscode.ThemeColor('charts.blue'));
      item.command = { command: 'rayRelay.resume', title: 'Resume', arguments: [{ relay, row }] };
      return item;
    }
    case 'message': {
      const item = new vscode.TreeItem(row.text, None);
      item.tooltip = row.text;
      item.iconPath = new vscode.ThemeIcon(row.isTrouble ? 'warning' : 'info');
      if (row.key === STATE_KEY) {
        item.command = { command: 'rayRelay.diagnose', title: 'Why is nothing here?', arguments: [{ relay, row }] };
      }
      return item;
    }
  }
}

function taskItem(relay: Relay, task: Breakpoint): vscode.TreeItem {
  const item = new vscode.TreeItem(labelOf(task), vscode.TreeItemCollapsibleState.None);
  const me = relay.subject;
  item.description = descriptionOf(task, me, Date.now());
  const lines = [task.title, item.description, `id ${task.id}`, task.why];
  item.tooltip = lines.flatMap((line) => (line ? [oneLine(line, 500)] : [])).join('\n');
  const isMine = isParkedFor(task, me);
  if (task.kind === 'pdb')
    item.tooltip += `\nWith Ray's legacy debugger: \`ray-relay debug ${task.id}\` in a terminal.`;
  item.contextValue = isFree(task) ? 'task.free' : isMine ? 'task.mine' : 'task.held';
  const [icon, color] = iconOf(item.contextValue, task.exception !== null);
  item.iconPath = new vscode.ThemeIcon(icon, color === undefined ? undefined : new vscode.ThemeColor(color));
  return item;
}

function sectionItem(relay: Relay, section: SectionName): vscode.TreeItem {
  const item = new vscode.TreeItem(
    section === 'failed' ? 'Failed' : 'Running',
    vscode.TreeItemCollapsibleState.Collapsed,
  );
  item.id = `${relay.saved.id}/section/${section}`;
  item.iconPath = new vscode.ThemeIcon(section === 'failed' ? 'error' : 'run');
  return item;
}

function sectionRowItem(relay: Relay, row: SectionRow): vscode.TreeItem {
  const item = new vscode.TreeItem(row.label, vscode.TreeItemCollapsibleState.None);
  item.description = row.description;
  item.tooltip = [row.label, row.description].filter(Boolean).join('\n');
  item.contextValue = row.failed !== undefined ? 'failed' : row.running !== undefined ? 'running' : 'sentence';
  if (row.failed !== undefined) {
    item.command = { command: 'rayRelay.inspectFailed', title: 'Inspect', arguments: [{ relay, inSection: row }] };
    item.iconPath = new vscode.ThemeIcon('error', new vscode.ThemeColor('charts.red'));
  } else if (row.running === undefined) {
    item.iconPath = new vscode.ThemeIcon(row.isTrouble === true ? 'warning' : 'info');
  }
  return item;
}

function iconOf(context: string, isFailure: boolean): [string, string?] {
  if (context === 'task.mine') return ['bookmark', 'charts.blue'];
  if (context === 'task.held') return ['lock'];
  return isFailure ? ['error', 'charts.red'] : ['debug-pause', 'charts.orange'];
}
