// Positions of the bytes that a link has sent, received and acknowledged. Pure.
//
// Positions count from the beginning of a direction. Its end counts as one position, so that it is acknowledged and
// sent again like a byte. The protocol: crates/base/src/wire/resumed/protocol.md.

/** The two sides disagree about positions: the link cannot be resumed. */
export class Mismatch extends Error {}

function checkWithin(reported: number, from: number, to: number): void {
  if (reported < from || reported > to) {
    throw new Mismatch(`the other side counts ${reported} bytes, where it can be ${from} to ${to}`);
  }
}

/** The direction that this side writes. Keeps what the other side may not have received. */
export class OutgoingOffsets {
  private stored: Uint8Array = new Uint8Array(0);
  /** Position of the first stored byte. */
  private start = 0;
  /** Next position to send over the current transport. */
  private next = 0;
  /** Largest position ever sent. */
  private sent = 0;
  private acknowledgedBefore = 0;
  private ended = false;
  /** The other side no longer reads: its positions are ignored. */
  private abandoned = false;

  /** At most `window` bytes are unacknowledged at a time. */
  constructor(private readonly window: number) {}

  private get end(): number {
    return this.start + this.stored.length;
  }

  private get total(): number {
    return this.end + (this.ended ? 1 : 0);
  }

  /** Number of bytes that may be written now. */
  get room(): number {
    return this.ended ? 0 : Math.max(0, this.acknowledgedBefore + this.window - this.end);
  }

  /** Stores as many of `bytes` as fit, and returns their number. */
  write(bytes: Uint8Array): number {
    const accepted = bytes.subarray(0, this.room);
    if (accepted.length > 0) this.stored = concat(this.stored, accepted);
    return accepted.length;
  }

  finish(): void {
    this.ended = true;
  }

  /** The next bytes for the current transport, at most `most`; `'end'` behind the last one. */
  send(most: number): Uint8Array | 'end' | undefined {
    if (this.abandoned) return undefined;
    if (this.next < this.end) {
      const at = this.next - this.start;
      const bytes = this.stored.slice(at, at + most);
      this.advance(bytes.length);
      return bytes;
    }
    if (this.ended && this.next === this.end) {
      this.advance(1);
      return 'end';
    }
    return undefined;
  }

  private advance(count: number): void {
    this.next += count;
    this.sent = Math.max(this.sent, this.next);
  }

  /** The other side has consumed everything before `position`. Throws a {@link Mismatch}. */
  acknowledge(position: number): void {
    if (this.abandoned) return;
    checkWithin(position, this.acknowledgedBefore, this.next);
    this.acknowledgedBefore = position;
    this.forget(position);
  }

  /** Over a new transport: the other side has received everything before `received`. Throws a {@link Mismatch}. */
  resume(received: number): void {
    if (this.abandoned) return;
    checkWithin(received, this.start, this.sent);
    this.forget(received);
    this.next = received;
  }

  private forget(before: number): void {
    const count = Math.max(0, Math.min(before, this.end) - this.start);
    this.stored = this.stored.slice(count);
    this.start += count;
  }

  /** The other side no longer reads: drops what is stored. */
  abandon(): void {
    this.start = this.end;
    this.stored = new Uint8Array(0);
    this.ended = this.abandoned = true;
    this.next = this.sent = this.acknowledgedBefore = this.total;
  }

  /** Whether the other side has received all bytes. */
  get isEmpty(): boolean {
    return this.stored.length === 0;
  }

  /** Whether the other side has acknowledged everything, the end included. */
  get isDone(): boolean {
    return this.ended && this.acknowledgedBefore === this.total;
  }
}

/** The direction that the other side writes. What arrives is consumed at once. */
export class IncomingOffsets {
  private receivedBefore = 0;
  private acknowledgedBefore = 0;
  /** The last acknowledgement may be lost: the transport is a new one. */
  private acknowledgesAgain = false;
  private ended = false;

  /** The other side sends at most `window` bytes beyond what it knows to be consumed. */
  constructor(private readonly window: number) {}

  /** Position before which everything was received. */
  get received(): number {
    return this.receivedBefore;
  }

  /** Counts `length` received bytes. Throws a {@link Mismatch}. */
  receive(length: number): void {
    if (this.ended) throw new Mismatch('the other side goes on after its end');
    if (this.receivedBefore - this.acknowledgedBefore + length > this.window) {
      throw new Mismatch('the other side sends more than was agreed');
    }
    this.receivedBefore += length;
  }

  /** Counts the end. Throws a {@link Mismatch}. */
  finish(): void {
    if (this.ended) throw new Mismatch('the other side goes on after its end');
    this.ended = true;
    this.receivedBefore += 1;
  }

  /** The position to acknowledge, if that is due: before the other side has to wait, at the end, and if `all`. */
  acknowledge(all: boolean): number | undefined {
    const news = this.receivedBefore - this.acknowledgedBefore;
    const isDue = news >= this.window / 4 || this.ended || all;
    if (!(news > 0 && isDue) && !this.acknowledgesAgain) return undefined;
    this.acknowledgedBefore = this.receivedBefore;
    this.acknowledgesAgain = false;
    return this.acknowledgedBefore;
  }

  /** Over a new transport, the last acknowledgement may be lost. */
  resume(): void {
    this.acknowledgesAgain = this.acknowledgedBefore > 0;
  }

  /** Whether everything was received and acknowledged, the end included. */
  get isDone(): boolean {
    return this.isWhole && this.acknowledgedBefore === this.receivedBefore && !this.acknowledgesAgain;
  }

  /** Whether the end was received. */
  get isWhole(): boolean {
    return this.ended;
  }
}

function concat(first: Uint8Array, second: Uint8Array): Uint8Array {
  const both = new Uint8Array(first.length + second.length);
  both.set(first);
  both.set(second, first.length);
  return both;
}
