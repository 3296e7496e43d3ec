// Debug sessions of type "ray-relay": which relay each one leads to, and its adapter.

import { createHash, randomBytes } from 'node:crypto';

import * as v from 'valibot';
import * as vscode from 'vscode';

import { showNotice } from '../notify.js';
import type { Breakpoint } from '../relay/breakpoint.js';
import type { Relay } from '../relay/relay.js';
import type { Relays } from '../relay/relays.js';
import type { Tunnel } from '../tunnel/tunnel.js';
import { RelayAdapter } from './adapter.js';
import { SessionBudget } from './budget.js';
import { attachConfiguration, withDefaults, problemOf } from './configuration.js';
import { sessionsToResume, type OpenSession } from './stopped.js';

/** VS Code waits for two seconds at most when its window closes. */
const LEAVE_TIMEOUT_MS = 1_500;
const LEAVE_POLL_MS = 20;

/** At most so often the end of sessions is announced: those of a job end together, but not at the same moment. */
const END_INTERVAL_MS = 60_000;

/** How often a credential that ends soon is looked for. */
const RENEWAL_INTERVAL_MS = 20_000;

/** The configuration of a session of one task that is named by its id. */
const OneTask = v.object({ rayRelay: v.object({ breakpoint: v.string() }) });

interface Opened {
  relay: Relay;
  session: vscode.DebugSession;
}

export class DebugSessions
  implements vscode.DebugAdapterDescriptorFactory, vscode.DebugConfigurationProvider, vscode.Disposable
{
  private readonly opener: string;
  private readonly adapters = new Map<RelayAdapter, Opened>();
  /** Streams whose end the relay may not know yet. */
  private readonly leaving = new Set<Tunnel>();
  private readonly renewal: NodeJS.Timeout;
  private readonly budget = new SessionBudget();
  private announcedAt = 0;

  constructor(
    private readonly relays: Relays,
    workspaceId: string | undefined,
    /** Whether the editor has the files of this machine. */
    private readonly isLocal: boolean,
    /** Called when a task of a session stops or resumes, and when a session is over. */
    private readonly onChange: () => void,
  ) {
    this.opener = openerOf(workspaceId);
    this.renewal = setInterval(() => this.renew(), RENEWAL_INTERVAL_MS);
  }

  // Configurations.

  resolveDebugConfiguration(
    _folder: vscode.WorkspaceFolder | undefined,
    configuration: vscode.DebugConfiguration,
  ): vscode.DebugConfiguration | undefined {
    if (configuration.type !== undefined) return configuration;
    // Without a launch.json, F5 gives an empty configuration. Where the relay knows its users, it is for the user's own jobs.
    const me = this.relays.named(undefined)?.subject ?? null;
    return attachConfiguration(undefined, 'Ray', { all: me === null ? true : 'mine' });
  }

  /** What was filled in before this is what the folder and the platform say. */
  resolveDebugConfigurationWithSubstitutedVariables(
    folder: vscode.WorkspaceFolder | undefined,
    given: vscode.DebugConfiguration,
  ): vscode.DebugConfiguration | undefined {
    const problem = problemOf(given);
    if (problem !== undefined) {
      void vscode.window.showErrorMessage(problem, { modal: true });
      return undefined;
    }
    const first = folder ?? vscode.workspace.workspaceFolders?.[0];
    return withDefaults(given, first?.uri.fsPath, process.platform === 'win32');
  }

  // Adapters.

  createDebugAdapterDescriptor(session: vscode.DebugSession): vscode.DebugAdapterDescriptor {
    const name = relayNameOf(session);
    const relay = this.relays.named(name);
    if (relay === undefined) throw new Error(noRelay(name, this.relays.all));
    const adapter: RelayAdapter = new RelayAdapter(
      relay.endpoint,
      relay.name,
      this.opener,
      this.isLocal,
      () => this.budget.mayOpen(this.adapters.size),
      this.onChange,
      (why) => void this.announceEnd(relay, why),
      (tunnel) => {
        this.adapters.delete(adapter);
        this.onChange();
        if (tunnel !== undefined && !tunnel.isOver) this.leaving.add(tunnel);
      },
    );
    this.adapters.set(adapter, { relay, session });
    return new vscode.DebugAdapterInlineImplementation(adapter);
  }

  /** The sessions to resume so that those of `tasks` continue that have stopped. */
  stoppedIn(relay: Relay, tasks: readonly Breakpoint[]): OpenSession<vscode.DebugSession>[] {
    const all = [...this.adapters].flatMap(([adapter, { relay: of, session }]) => {
      const { parentSession: parent } = session;
      return of === relay ? [{ session, parent, task: taskOf(session), threadId: adapter.stopped.id }] : [];
    });
    return sessionsToResume(all, new Set(tasks.map((task) => task.id)));
  }

  /** Shows one notification for all sessions that end together. */
  private async announceEnd(relay: Relay, why: string): Promise<void> {
    if (Date.now() - this.announcedAt < END_INTERVAL_MS) return;
    this.announcedAt = Date.now();
    const button = 'Show the Tasks';
    if ((await showNotice(`${relay.name}: ${why}`, button)) === button) {
      await vscode.commands.executeCommand('rayRelay.tasks.focus');
    }
  }

  /** Shows the relay a credential before the one that is in use ends: it ends sessions with their credential. */
  private renew(): void {
    for (const tunnel of this.leaving) if (tunnel.isOver) this.leaving.delete(tunnel);
    for (const relay of new Set([...this.adapters.values()].map((opened) => opened.relay))) {
      const { renewAt } = relay.credential;
      if (renewAt === undefined || renewAt > Date.now()) continue;
      for (const [adapter, opened] of this.adapters) if (opened.relay === relay) adapter.reconnect();
    }
  }

  /** Resolves when the relays know that all streams have ended, or the time is up. */
  async leave(): Promise<void> {
    const until = Date.now() + LEAVE_TIMEOUT_MS;
    while (Date.now() < until && [...this.leaving].some((tunnel) => !tunnel.isOver)) {
      await new Promise((resolve) => setTimeout(resolve, LEAVE_POLL_MS));
    }
  }

  dispose(): void {
    clearInterval(this.renewal);
  }
}

/** The id of the task that a session is for, if its configuration names it. */
function taskOf({ configuration }: vscode.DebugSession): string | undefined {
  return v.is(OneTask, configuration) ? configuration.rayRelay.breakpoint : undefined;
}

/** `relay` of the session's configuration, or of the session that opened it. */
function relayNameOf(session: vscode.DebugSession): string | undefined {
  for (let one: vscode.DebugSession | undefined = session; one !== undefined; one = one.parentSession) {
    const name: unknown = one.configuration.relay;
    if (typeof name === 'string') return name;
  }
  return undefined;
}

function noRelay(name: string | undefined, all: Relay[]): string {
  if (all.length === 0) return 'There is no relay yet: open the view "Ray" and add one.';
  const names = all.map((relay) => `"${relay.name}"`).join(', ');
  if (name === undefined) return `Which relay? Write "relay": one of ${names}.`;
  return `There is no relay "${name}": you have ${names}.`;
}

/**
 * How this window names itself when it opens a stream: a place, and the process. A later process at the same place ends
 * the streams that an earlier one has left, when VS Code has crashed.
 */
function openerOf(workspaceId: string | undefined): string {
  const process = randomBytes(8).toString('hex');
  if (workspaceId === undefined) return `${randomBytes(8).toString('hex')}.${process}`;
  const place = createHash('sha256').update(`${vscode.env.machineId}\n${workspaceId}`).digest('hex').slice(0, 16);
  return `${place}.${process}`;
}
