// The tree of the side bar.

import * as vscode from 'vscode';

import { isParkedFor, type Breakpoint } from '../relay/breakpoint.js';
import type { Relay } from '../relay/relay.js';
import type { Relays } from '../relay/relays.js';
import { Given, type Drawn } from './given.js';
import { idOf, itemOf, STATE_KEY, type Node, type NodeRow } from './items.js';
import { rowsOf, type Row } from './rows.js';
import { Section, type SectionName } from './section.js';

/** The time for more changes to come before the tree is drawn anew. */
const REDRAW_DELAY_MS = 300;

/** The time between two drawings, for each row: one that has changed draws all below it. */
const REDRAW_INTERVAL_MS_PER_ROW = 2;

/** How often ages are drawn anew. */
const AGES_INTERVAL_MS = 15_000;

/** The id of what is above the relays. */
const ROOT = '';

export class TaskTree implements vscode.TreeDataProvider<Node>, vscode.Disposable {
  private readonly emitter = new vscode.EventEmitter<Node[] | undefined>();
  readonly onDidChangeTreeData = this.emitter.event;
  private timer: NodeJS.Timeout | undefined;
  private drawnAt = 0;
  private readonly ages: NodeJS.Timeout;
  private readonly sections = new WeakMap<Relay, Map<SectionName, Section>>();
  /** The rows by their ids: VS Code knows a row by its object. */
  private nodes = new Map<string, Node>();
  private readonly given = new Given();
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
    const next = this.drawnAt + REDRAW_INTERVAL_MS_PER_ROW * this.nodes.size;
    this.timer ??= setTimeout(
      () => {
        this.timer = undefined;
        this.drawChanged();
        this.drawnAt = Date.now();
      },
      Math.max(REDRAW_DELAY_MS, next - Date.now()),
    );
  }

  private drawChanged(): void {
    // Drawn when it is shown again.
    if (this.view?.visible === false) return;
    const before = this.nodes;
    this.nodes = new Map();
    const drawn = (node: Node): Drawn => {
      const children = this.rowsBelow(node).map((row) => this.node(node.relay, row, before));
      return { id: idOf(node), text: textOf(this.itemOf(node)), children: children.map(drawn) };
    };
    const relays = this.relays.all.map((relay) => this.node(relay, { kind: 'relay' }, before));
    const changed = this.given.changed({ id: ROOT, text: '', children: relays.map(drawn) });
    if (changed.includes(ROOT)) return this.emitter.fire(undefined);
    const isStale = ({ relay, row }: Node) =>
      row.kind === 'section' && this.sections.get(relay)?.get(row.name)?.isStale(Date.now()) === true;
    const nodes = changed.flatMap((id) => this.nodes.get(id) ?? []);
    const stale = [...this.nodes.values()].filter((node) => isStale(node) && !nodes.includes(node));
    if (nodes.length + stale.length > 0) this.emitter.fire([...nodes, ...stale]);
  }

  /** The object of a row: the one that VS Code has, with the row as it is now. */
  private node(relay: Relay, row: NodeRow, known = this.nodes): Node {
    const id = idOf({ relay, row });
    const node = known.get(id) ?? { relay, row };
    node.relay = relay;
    node.row = row;
    this.nodes.set(id, node);
    return node;
  }

  async getChildren(node?: Node): Promise<Node[]> {
    if (node === undefined) {
      const relays = this.relays.all.map((relay) => this.node(relay, { kind: 'relay' }));
      this.given.below(ROOT, relays.map(idOf));
      return relays;
    }
    const { relay, row } = node;
    // Rows of a section are drawn with it alone.
    if (row.kind === 'section') return (await this.rowsOfSection(relay, row.name)).map((row) => ({ relay, row }));
    const children = this.rowsBelow(node).map((row) => this.node(relay, row));
    this.given.below(idOf(node), children.map(idOf));
    return children;
  }

  private rowsBelow({ relay, row }: Node): readonly NodeRow[] {
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
    const item = this.itemOf(node);
    if (item.id !== undefined) this.given.row(item.id, textOf(item));
    return item;
  }

  private itemOf(node: Node): vscode.TreeItem {
    return itemOf(node, this.hasStopped);
  }

  dispose(): void {
    clearInterval(this.ages);
    clearTimeout(this.timer);
    this.emitter.dispose();
  }
}

/** All that is shown of a row. */
function textOf({ label, description, tooltip, contextValue, iconPath }: vscode.TreeItem): string {
  return JSON.stringify([label, description, tooltip, contextValue, iconPath]);
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
