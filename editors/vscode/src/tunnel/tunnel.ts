// Keeps a link carried: opens it, and resumes it over new WebSockets until it ends.

import type { WebSocket } from 'ws';

import { RelayError, type Endpoint } from '../relay/endpoint.js';
import { carry, type Transport } from './carry.js';
import { Link, type LinkReader } from './link.js';
import { parseLinkMessage, type LinkMessage } from './messages.js';

const CONNECT_PATH = '/relay/v1/connect';
const CONNECT_PROTOCOL = 'ray-relay-connect.v1';

/** Time limit for the relay's first message. */
const GREETING_TIMEOUT_MS = 10_000;

const MIN_RETRY_DELAY_MS = 250;
const MAX_RETRY_DELAY_MS = 10_000;

/** For how long a lost WebSocket is replaced, whatever the relay says. */
const MAX_HELD_MS = 7 * 24 * 3_600_000;

/** The same for a stream that has ended here. */
const CLOSED_TIMEOUT_MS = 10 * 60_000;

/** Number of answers from other relays behind the same name before the holder of the link is given up. */
const MAX_OTHER_REPLICAS = 8;

/** Silence after which the other side may have noticed a lost connection. */
const NOTICED_MS = 15_000;

/** Follows what becomes of a tunnel. */
export interface TunnelObserver extends LinkReader {
  /** The WebSocket is lost, and the first reconnect has failed. */
  lost(why: string): void;
  /** Another WebSocket carries the link on. */
  resumed(awayMs: number): void;
}

type Begun = Extract<LinkMessage, { type: 'begun' }>;

/** A byte stream to the relay's one port. */
export class Tunnel {
  private readonly link: Link;
  private socket: WebSocket | undefined;
  private isClosed = false;
  /** Ends a pause between two attempts. */
  private wake: () => void = () => {};

  private constructor(
    private readonly endpoint: Endpoint,
    private readonly begun: Begun,
    private readonly observer: TunnelObserver,
  ) {
    this.link = new Link(observer);
  }

  /** Opens a tunnel for the process `opener` (two times 16 hex digits). Throws a {@link RelayError}. */
  static async open(endpoint: Endpoint, opener: string, observer: TunnelObserver): Promise<Tunnel> {
    const headers = { 'ray-relay-connect-from': opener };
    const socket = await endpoint.webSocket(CONNECT_PATH, CONNECT_PROTOCOL, headers);
    const { first, early } = await greeting(socket);
    if (first.type !== 'begun') throw notARelay(socket);
    const tunnel = new Tunnel(endpoint, first, observer);
    void tunnel.keep({ socket, early, received: 0 });
    return tunnel;
  }

  write(bytes: Uint8Array): void {
    this.link.write(bytes);
  }

  /** Ends the stream behind what was written. The relay is notified as soon as it is reached. */
  close(): void {
    this.isClosed = true;
    this.link.close();
    this.wake();
  }

  /** Whether the relay knows that the stream has ended, or the stream is lost. */
  get isOver(): boolean {
    return this.link.isOver;
  }

  /** Replaces the WebSocket: the credential is a new one, or the network has changed. */
  reconnect(): void {
    this.socket?.terminate();
    this.wake();
  }

  private async keep(first: Transport): Promise<void> {
    let transport = first;
    for (;;) {
      this.socket = transport.socket;
      const last = { receivedAt: Date.now() };
      const cut = await carry(this.link, transport, last);
      this.socket = undefined;
      if (cut.kind === 'over') return;
      if (cut.kind === 'ended') return this.link.breakOff(cut.why);
      // The link's other direction may still owe something, but nothing that anyone waits for.
      if (this.link.owesNothing) return this.link.done();
      try {
        transport = await this.resume(last.receivedAt);
      } catch (error) {
        return this.link.breakOff(error instanceof Error ? error.message : 'the connection is lost');
      }
    }
  }

  /** Another WebSocket, with the position before which the relay has everything. Throws why there is none. */
  private async resume(receivedAt: number): Promise<Transport> {
    const began = Date.now();
    let pause = MIN_RETRY_DELAY_MS;
    let otherReplicas = 0;
    let isLost = false;
    for (;;) {
      let failed: RelayError;
      try {
        const resumed = await this.resumeOnce();
        const away = Date.now() - receivedAt;
        if (isLost || away > NOTICED_MS) this.observer.resumed(away);
        return resumed;
      } catch (error) {
        failed = error instanceof RelayError ? error : new RelayError(0, String(error));
      }
      if (!isLost) this.observer.lost(failed.message);
      isLost = true;
      if (failed.replica === this.begun.replica) throw new Error('the relay no longer holds it');
      if (failed.replica !== undefined && ++otherReplicas > MAX_OTHER_REPLICAS) {
        throw new Error('the relay was restarted, or another one answers');
      }
      // By the wall clock, which goes on while the machine sleeps.
      const held = Math.min(this.begun.held * 1000, this.isClosed ? CLOSED_TIMEOUT_MS : MAX_HELD_MS);
      if (Date.now() - began > held + GREETING_TIMEOUT_MS) {
        const minutes = Math.ceil(held / 60_000);
        throw new Error(
          `it was away for more than ${minutes} min. If the task is still stopped, it is in the view "Ray"`,
        );
      }
      await this.sleep(pause);
      pause = Math.min(pause * 2, MAX_RETRY_DELAY_MS);
    }
  }

  private async resumeOnce(): Promise<Transport> {
    const socket = await this.endpoint.webSocket(`${CONNECT_PATH}/${this.begun.link}`, CONNECT_PROTOCOL, {
      'ray-relay-stream-secret': this.begun.secret,
      'ray-relay-received': String(this.link.received),
    });
    const { first, early } = await greeting(socket);
    if (first.type !== 'resumed') throw notARelay(socket);
    return { socket, early, received: first.received };
  }

  private sleep(milliseconds: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, milliseconds);
      this.wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}

function notARelay(socket: WebSocket): RelayError {
  socket.terminate();
  return new RelayError(0, "The first message is not a relay's.");
}

/** The relay's first message, and those that arrived together with it. Leaves the socket paused. */
function greeting(socket: WebSocket): Promise<{ first: LinkMessage; early: Transport['early'] }> {
  return new Promise((resolve, reject) => {
    const early: Transport['early'] = [];
    const end = () => {
      clearTimeout(timer);
      socket.off('message', read).off('close', lost);
      // Until the link takes them.
      socket.on('message', (data: Buffer, isBinary) => early.push({ data, isBinary }));
    };
    const read = (data: Buffer, isBinary: boolean) => {
      end();
      socket.pause();
      try {
        const message = isBinary ? undefined : parseLinkMessage(data.toString('utf8'));
        if (message !== undefined) return resolve({ first: message, early });
      } catch {
        // Not a message of ours.
      }
      reject(notARelay(socket));
    };
    const lost = () => {
      end();
      reject(new RelayError(0, 'The connection to the relay broke off.'));
    };
    const timer = setTimeout(() => {
      end();
      socket.terminate();
      reject(new RelayError(0, 'The relay does not answer.'));
    }, GREETING_TIMEOUT_MS);
    socket.on('message', read).on('close', lost);
    socket.resume();
  });
}
