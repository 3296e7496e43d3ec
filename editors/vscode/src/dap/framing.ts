// Messages of the Debug Adapter Protocol in a byte stream: `Content-Length: N`, an empty line, N bytes of JSON.

/** Largest header. */
const MAX_HEADER_BYTES = 1024;

/** Largest message. */
const MAX_MESSAGE_BYTES = 16 * 1024 * 1024;

/** Most pieces that wait for the rest of a message: each costs more than its bytes. */
const MAX_PIECES = 1024;

const END_OF_HEADER = Buffer.from('\r\n\r\n');

export class BadFrame extends Error {}

export function frame(message: unknown): Buffer {
  const body = Buffer.from(JSON.stringify(message), 'utf8');
  return Buffer.concat([Buffer.from(`Content-Length: ${body.length}\r\n\r\n`, 'ascii'), body]);
}

/** Incremental parser: takes bytes split anywhere. */
export class Deframer {
  private pieces: Buffer[] = [];
  private length = 0;
  /** Bytes that are needed before there is anything to do. */
  private needed = 1;

  /** The messages that are complete with `bytes`. Throws a {@link BadFrame}. */
  feed(bytes: Uint8Array): unknown[] {
    this.pieces.push(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength));
    this.length += bytes.length;
    if (this.length < this.needed) {
      if (this.pieces.length > MAX_PIECES) this.pieces = [Buffer.concat(this.pieces)];
      return [];
    }
    let rest = Buffer.concat(this.pieces);
    const messages: unknown[] = [];
    for (;;) {
      const end = rest.indexOf(END_OF_HEADER);
      if (end < 0) {
        if (rest.length > MAX_HEADER_BYTES) throw new BadFrame('a message without its length');
        this.needed = rest.length + 1;
        break;
      }
      if (end > MAX_HEADER_BYTES) throw new BadFrame('a message whose header is too long');
      const body = end + END_OF_HEADER.length;
      const whole = body + bodyLength(rest.subarray(0, end).toString('latin1'));
      if (rest.length < whole) {
        this.needed = whole;
        break;
      }
      messages.push(parse(rest.subarray(body, whole)));
      rest = rest.subarray(whole);
    }
    // A copy, so that a short rest does not keep a long message alive.
    this.pieces = rest.length === 0 ? [] : [Buffer.from(rest)];
    this.length = rest.length;
    return messages;
  }
}

function bodyLength(header: string): number {
  const digits = /^content-length:[ \t]*([0-9]{1,10})[ \t]*$/im.exec(header)?.[1];
  const length = Number(digits ?? Number.NaN);
  if (!(length <= MAX_MESSAGE_BYTES)) throw new BadFrame('a message without its length, or too long');
  return length;
}

function parse(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString('utf8'));
  } catch {
    throw new BadFrame('a message that is no JSON');
  }
}
