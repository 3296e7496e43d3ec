// The debug adapter of one session: VS Code's messages to the relay and back, over a tunnel of its own.

import * as vscode from 'vscode';

import type { Endpoint } from '../relay/endpoint.js';
import { span, withoutLinks } from '../text.js';
import { Tunnel, type TunnelObserver } from '../tunnel/tunnel.js';
import { Deframer, frame } from './framing.js';
import { passFromRelay, passToRelay } from './gate.js';
import { MissingSources } from './sources.js';
import { isContinueAnswer, StoppedThread } from './stopped.js';

/** First `seq` of the adapter's own messages; the relay's own count from 0x5000_0000. */
const FIRST_OWN_SEQ = 0x4000_0000;

/** Messages that wait for the tunnel to open. VS Code sends a few, and waits for the first answer. */
const MAX_EARLY_MESSAGES = 64;

interface Request {
  seq: number;
  type: string;
  command: string;
}

export class RelayAdapter implements vscode.DebugAdapter, TunnelObserver {
  private readonly emitter = new vscode.EventEmitter<vscode.DebugProtocolMessage>();
  readonly onDidSendMessage = this.emitter.event;
  private readonly deframer = new Deframer();
  private readonly sources: MissingSources | undefined;
  private tunnel: Tunnel | undefined;
  private readonly early: unknown[] = [];
  /** Why there is no connection. */
  private failure: string | undefined;
  private isDisposed = false;
  private hasEnded = false;
  readonly stopped: StoppedThread;
  private seq = FIRST_OWN_SEQ;

  constructor(
    endpoint: Endpoint,
    private readonly relay: string,
    opener: string,
    /** Whether the editor has the files of this machine. */
    isLocal: boolean,
    /** Whether another session may be opened. */
    private readonly mayOpen: () => boolean,
    /** Called when the task stops or resumes. */
    onStopChange: () => void,
    /** Called with a sentence when the session has ended by itself. */
    private readonly onEnded: (why: string) => void,
    private readonly onClosed: (tunnel: Tunnel | undefined) => void,
  ) {
    this.stopped = new StoppedThread(onStopChange);
    if (isLocal) {
      this.sources = new MissingSources({
        toRelay: (message) => this.tunnel?.write(frame(message)),
        toEditor: (message) => this.emitter.fire(message),
      });
    }
    Tunnel.open(endpoint, opener, this).then(
      (tunnel) => this.opened(tunnel),
      (error: unknown) => this.failed(error instanceof Error ? error.message : String(error)),
    );
  }

  private opened(tunnel: Tunnel): void {
    this.tunnel = tunnel;
    for (const message of this.early.splice(0)) tunnel.write(frame(message));
    if (this.isDisposed) tunnel.close();
  }

  private failed(why: string): void {
    this.failure = withoutLinks(why);
    for (const message of this.early.splice(0)) this.refuse(message as Request);
  }

  /** Replaces the tunnel's WebSocket, with the credential as it is now. */
  reconnect(): void {
    this.tunnel?.reconnect();
  }

  handleMessage(message: vscode.DebugProtocolMessage): void {
    const passed = passToRelay(message);
    this.sources?.request(message);
    if (this.failure !== undefined) this.refuse(passed as Request);
    else if (this.tunnel !== undefined) this.tunnel.write(frame(passed));
    else if (this.early.length < MAX_EARLY_MESSAGES) this.early.push(passed);
  }

  /** Answers a request that the relay will not see. */
  private refuse(request: Request): void {
    if (request.type !== 'request') return;
    const isDisconnect = ['disconnect', 'terminate'].includes(request.command);
    const answer = { type: 'response', request_seq: request.seq, command: request.command, success: isDisconnect };
    const why = this.failure ?? '';
    // Braces are placeholders in DAP's format.
    const error = { id: 1, format: '{why}', variables: { why }, showUser: true };
    this.send(isDisconnect ? answer : { ...answer, message: why, body: { error } });
  }

  private send(message: object): void {
    this.emitter.fire({ seq: this.seq++, ...message });
  }

  private print(output: string): void {
    this.send({ type: 'event', event: 'output', body: { category: 'console', output: `${output}\n` } });
  }

  // What the tunnel delivers.

  bytes(bytes: Uint8Array): void {
    try {
      for (const message of this.deframer.feed(bytes)) this.fromRelay(message);
    } catch (error) {
      this.end(`The relay does not speak DAP: ${(error as Error).message}.`);
      return this.tunnel?.close();
    }
  }

  private fromRelay(message: unknown): void {
    const passed = passFromRelay(message, this.relay, this.mayOpen);
    if (passed.kind === 'refused') this.tunnel?.write(frame(passed.answer));
    if (passed.kind !== 'passed' || this.sources?.takes(passed.message) === true) return;
    const threadId = this.stopped.id;
    this.stopped.fromRelay(passed.message);
    this.emitter.fire(passed.message);
    // VS Code does not conclude it from the answer to a request of ours, and a cluster session sends no event.
    if (threadId !== undefined && isContinueAnswer(passed.message)) {
      this.send({ type: 'event', event: 'continued', body: { threadId, allThreadsContinued: true } });
    }
  }

  end(why?: string): void {
    if (this.hasEnded) return;
    this.hasEnded = true;
    if (why !== undefined && !this.isDisposed) {
      this.print(why);
      this.onEnded(why);
    }
    this.send({ type: 'event', event: 'terminated' });
  }

  broken(why: string): void {
    this.failure = withoutLinks(`The connection to the relay is over: ${why}.`);
    this.end(this.failure);
    this.onClosed(this.tunnel);
  }

  lost(why: string): void {
    if (this.isDisposed) return;
    this.print(`ray-relay: the connection is lost. ${why} Trying again; a stopped task stays stopped meanwhile.`);
  }

  resumed(awayMs: number): void {
    if (!this.isDisposed) this.print(`ray-relay: connected again after ${span(awayMs / 1000)}.`);
  }

  dispose(): void {
    this.isDisposed = true;
    this.sources?.dispose();
    this.tunnel?.close();
    this.onClosed(this.tunnel);
    this.emitter.dispose();
  }
}
