// One connection to the relay, which outlives its WebSockets: what to send next, and what has arrived. No I/O.

import { LinkMessage, parseLinkMessage } from './messages.js';
import { IncomingOffsets, Mismatch, OutgoingOffsets } from './offsets.js';

/** Unacknowledged bytes towards the relay. */
export const UP_WINDOW_BYTES = 256 * 1024;

/** Unacknowledged bytes from the relay. */
export const DOWN_WINDOW_BYTES = 1024 * 1024;

/** Largest binary message, in either direction. */
export const MAX_FRAME_BYTES = 64 * 1024;

/** Bytes that wait for the window. A client that writes more has lost its connection for too long. */
const MAX_WAITING_BYTES = 16 * 1024 * 1024;

/** What a transport sends next. `done`: nothing will follow. `over`: another transport carries the link, or it broke. */
export type NextItem =
  | { kind: 'bytes'; bytes: Uint8Array }
  | { kind: 'end' }
  | { kind: 'message'; message: LinkMessage }
  | { kind: 'nothing' }
  | { kind: 'done' }
  | { kind: 'over' };

/** Receives what a link delivers. */
export interface LinkReader {
  bytes(bytes: Uint8Array): void;
  /** The other side has ended its direction. */
  end(): void;
  /** The link is over, whatever was in transit. */
  broken(why: string): void;
}

export class Link {
  private readonly outgoing: OutgoingOffsets;
  private readonly incoming: IncomingOffsets;
  /** Written, and beyond the window. */
  private readonly waiting: Uint8Array[] = [];
  private waitingBytes = 0;
  private finishes = false;
  private isClosed = false;
  private closeSentHere = false;
  private closeSent = false;
  private peerIsGone = false;
  private usedSent = false;
  /** Number of the current transport; former ones are ignored. */
  private transport = 0;
  private phase: 'open' | 'done' | 'broken' = 'open';
  /** Called when there may be something to send. */
  onToSend: () => void = () => {};

  constructor(
    private readonly reader: LinkReader,
    upWindow: number = UP_WINDOW_BYTES,
    downWindow: number = DOWN_WINDOW_BYTES,
  ) {
    this.outgoing = new OutgoingOffsets(upWindow);
    this.incoming = new IncomingOffsets(downWindow);
  }

  /** Position before which everything was received. */
  get received(): number {
    return this.incoming.received;
  }

  get isOver(): boolean {
    return this.phase !== 'open';
  }

  /** Whether nothing is lost if the link ends now. */
  get owesNothing(): boolean {
    const hasRead = this.isClosed || this.incoming.isWhole;
    return hasRead && (this.peerIsGone || (this.isClosed && this.waitingBytes === 0 && this.outgoing.isEmpty));
  }

  /** Attaches a transport over which the relay has everything before `received`; returns its number. Throws. */
  attach(received: number): number {
    this.outgoing.resume(received);
    this.incoming.resume();
    this.usedSent = this.closeSentHere = false;
    this.transport += 1;
    return this.transport;
  }

  /** Writes all of `bytes`, now or when the window allows. */
  write(bytes: Uint8Array): void {
    if (this.finishes || this.isOver) return;
    const accepted = this.waiting.length === 0 ? this.outgoing.write(bytes) : 0;
    if (accepted < bytes.length) {
      this.waitingBytes += bytes.length - accepted;
      if (this.waitingBytes > MAX_WAITING_BYTES) {
        return this.breakOff('too much waits for the relay');
      }
      this.waiting.push(bytes.slice(accepted));
    }
    this.onToSend();
  }

  /** Ends the direction to the relay, behind what was written. */
  finish(): void {
    this.finishes = true;
    this.refill();
    this.onToSend();
  }

  /** This side no longer reads either. */
  close(): void {
    this.isClosed = true;
    this.finish();
  }

  /** Ends the link for good. `why` is the end of a sentence. */
  breakOff(why: string): void {
    if (this.isOver) return;
    this.phase = 'broken';
    this.reader.broken(why);
    this.onToSend();
  }

  private refill(): void {
    while (this.waiting.length > 0) {
      const first = this.waiting[0]!;
      const accepted = this.outgoing.write(first);
      this.waitingBytes -= accepted;
      if (accepted < first.length) {
        this.waiting[0] = first.subarray(accepted);
        return;
      }
      this.waiting.shift();
    }
    if (this.finishes) this.outgoing.finish();
  }

  /** What the transport `number` sends next; `all` includes acknowledgements that are only due with a heartbeat. */
  next(number: number, all: boolean): NextItem {
    if (number !== this.transport || this.phase === 'broken') return { kind: 'over' };
    if (!this.usedSent) {
      this.usedSent = true;
      return { kind: 'message', message: { type: 'used' } };
    }
    const before = this.incoming.acknowledge(all);
    if (before !== undefined) return { kind: 'message', message: { type: 'taken', before } };
    const sent = this.outgoing.send(MAX_FRAME_BYTES);
    if (sent === 'end') return { kind: 'end' };
    if (sent !== undefined) return { kind: 'bytes', bytes: sent };
    if (this.isClosed && !this.closeSentHere) {
      this.closeSentHere = this.closeSent = true;
      return { kind: 'message', message: { type: 'gone' } };
    }
    const hasRead = this.incoming.isDone || (this.isClosed && this.closeSent);
    if (!hasRead || !this.outgoing.isDone) return { kind: 'nothing' };
    this.done();
    return { kind: 'done' };
  }

  /** The relay has everything, and expects nothing more. */
  done(): void {
    if (this.phase === 'open') this.phase = 'done';
  }

  /** Processes a binary message of the transport `number`. Throws a {@link Mismatch}. */
  receive(number: number, bytes: Uint8Array): void {
    if (number !== this.transport || this.isOver) return;
    if (bytes.length > MAX_FRAME_BYTES) throw new Mismatch('the other side sends more than was agreed');
    if (bytes.length === 0) {
      this.incoming.finish();
      if (!this.isClosed) this.reader.end();
    } else {
      this.incoming.receive(bytes.length);
      if (!this.isClosed) this.reader.bytes(bytes);
    }
    this.onToSend();
  }

  /** Processes a text message of the transport `number`. Throws a {@link Mismatch}, or what parsing throws. */
  receiveText(number: number, text: string): void {
    const message = parseLinkMessage(text);
    if (number !== this.transport || this.isOver || message === undefined) return;
    if (message.type === 'taken') {
      this.outgoing.acknowledge(message.before);
      this.refill();
    } else if (message.type === 'gone') {
      this.peerIsGone = true;
      this.waiting.length = 0;
      this.outgoing.abandon();
    }
    this.onToSend();
  }
}
