// The tree of the side bar.

import * as vscode from 'vscode';

import { isParkedFor, type Breakpoint } from '../relay/breakpoint.js';
import type { Relay } from '../relay/relay.js';
import type { Relays } from '../relay/relays.js';
import { itemOf, STATE_KEY, type Node, type NodeRow } from './items.js';
import { rowsOf, type Row } from './rows.js';
import { Section, type SectionName } from './section.js';

/** At most so often the tree is drawn anew. */
const REDRAW_INTERVAL_MS = 300;

/** How often ages are drawn anew. */
const AGES_INTERVAL_MS = 15_000;

export class TaskTree implements vscode.TreeDataProvider<Node>, vscode.Disposable {
  private readonly emitter = new vscode.EventEmitter<void>();
  readonly onDidChangeTreeData = this.emitter.event;
  private timer: NodeJS.Timeout | undefined;
  private readonly ages: NodeJS.Timeout;
  private readonly sections = new WeakMap<Relay, Map<SectionName, Section>>();
  private words = '';
  view: vscode.TreeView<Node> | undefined;

  constructor(
    private readonly relays: Relays,
    /** Whether this window has stopped sessions of some of the tasks. */
    private readonly hasStopped: (relay: Relay, tasks: readonly Breakpoint[]) => boolean,
  ) {
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

  async getChildren(node?: Node): Promise<Node[]> {
    if (node === undefined) return this.relays.all.map((relay) => ({ relay, row: { kind: 'relay' } }));
    const { relay, row } = node;
    const rows = await this.childrenOf(relay, row);
    return rows.map((row) => ({ relay, row }));
  }

  private childrenOf(relay: Relay, row: NodeRow): NodeRow[] | Promise<NodeRow[]> {
    if (row.kind === 'section') return this.rowsOfSection(relay, row.name);
    if (row.kind !== 'relay') return 'children' in row ? row.children : [];
    const rows = this.rowsOfRelay(relay);
    if (relay.feed?.state.kind !== 'live') return rows;
    return [...rows, { kind: 'section', name: 'failed' }, { kind: 'section', name: 'running' }];
  }

  private rowsOfSection(relay: Relay, name: SectionName): Promise<NodeRow[]> {
    const sections = this.sections.get(relay) ?? new Map<SectionName, Section>();
    this.sections.set(relay, sections);
    const section = sections.get(name) ?? new Section(relay.endpoint, name);
    sections.set(name, section);
    return section.read(Date.now());
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

  getTreeItem(node: Node): vscode.TreeItem {
    return itemOf(node, this.hasStopped);
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
