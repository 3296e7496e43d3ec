// A stream outlives its WebSockets: what was written arrives once, whole and in order, whatever the network does.

import { afterEach, beforeEach, describe, expect, it } from 'vitest';

import { Endpoint } from '../src/relay/endpoint.js';
import { Tunnel, type TunnelObserver } from '../src/tunnel/tunnel.js';
import { EchoRelay, Network } from './support/peer.js';

const OPENER = '0123456789abcdef.fedcba9876543210';
const CUTS = 40;
const TOTAL_BYTES = (process.env.RAY_RELAY_LONG === undefined ? 12 : 300) * 1024 * 1024;
const PIECE_BYTES = 48 * 1024;

const byteAt = (position: number) => (Math.imul(position, 2654435761) >>> 7) & 0xff;

function piece(from: number, length: number): Buffer {
  const bytes = Buffer.alloc(length);
  for (let at = 0; at < length; at += 1) bytes[at] = byteAt(from + at);
  return bytes;
}

/** Notes what becomes of a tunnel. */
class Observer implements TunnelObserver {
  received = 0;
  wrong: number | undefined;
  events: string[] = [];
  private readonly waits: { until: () => boolean; resolve: () => void }[] = [];

  bytes(bytes: Uint8Array): void {
    for (const byte of bytes) {
      if (byte !== byteAt(this.received)) this.wrong ??= this.received;
      this.received += 1;
    }
    this.look();
  }

  end(): void {
    this.note('end');
  }

  broken(why: string): void {
    this.note(`broken: ${why}`);
  }

  lost(): void {
    this.note('lost');
  }

  resumed(): void {
    this.note('resumed');
  }

  private note(event: string): void {
    this.events.push(event);
    this.look();
  }

  look(): void {
    for (const wait of this.waits) if (wait.until()) wait.resolve();
  }

  until(until: () => boolean): Promise<void> {
    return new Promise((resolve) => {
      this.waits.push({ until, resolve });
      this.look();
    });
  }
}

let relay: EchoRelay;
let network: Network;
let observer: Observer;

beforeEach(async () => {
  relay = await EchoRelay.start();
  network = await Network.to(relay.port);
  observer = new Observer();
});

afterEach(() => {
  network.stop();
  relay.stop();
});

function endpoint(tokens: (fresh: boolean) => string | undefined = () => undefined): Endpoint {
  const reached = { url: network.url, options: {} };
  return new Endpoint(
    () => Promise.resolve(reached),
    (fresh) => Promise.resolve(tokens(fresh)),
  );
}

const open = (to = endpoint()) => Tunnel.open(to, OPENER, observer);

describe('a tunnel', () => {
  it(`carries ${TOTAL_BYTES >> 20} MiB through ${CUTS} cuts`, { timeout: 600_000 }, async () => {
    const tunnel = await open();
    let written = 0;
    for (let cut = 0; cut < CUTS; cut += 1) {
      const until = Math.floor((TOTAL_BYTES / CUTS) * (cut + 1));
      while (written < until) {
        const length = Math.min(PIECE_BYTES, until - written);
        tunnel.write(piece(written, length));
        written += length;
        await observer.until(() => written - observer.received < 2 * 1024 * 1024);
      }
      network.cut();
    }
    await observer.until(() => observer.received === TOTAL_BYTES);
    expect(observer.wrong).toBeUndefined();
    tunnel.close();
    await expect.poll(() => tunnel.isOver, { timeout: 10_000 }).toBe(true);
    expect([...relay.links.values()].map((link) => link.hasEnded)).toEqual([true]);
    expect(observer.events.filter((event) => event.startsWith('broken'))).toEqual([]);
  });

  it('is used from its beginning, and names the window that opens it', async () => {
    const tunnel = await open();
    tunnel.write(piece(0, 10));
    await observer.until(() => observer.received === 10);
    expect([...relay.links.values()][0]?.isUsed).toBe(true);
    expect(relay.requests[0]?.headers['ray-relay-connect-from']).toBe(OPENER);
    expect(relay.requests[0]?.headers['sec-websocket-protocol']).toBe('ray-relay-connect.v1');
    tunnel.close();
  });

  it('says when it is lost and when it is back, and loses nothing that was written meanwhile', async () => {
    const tunnel = await open();
    network.isDown = true;
    network.cut();
    await observer.until(() => observer.events.includes('lost'));
    tunnel.write(piece(0, 300_000));
    network.isDown = false;
    await observer.until(() => observer.received === 300_000);
    expect(observer.events).toEqual(['lost', 'resumed']);
    expect(observer.wrong).toBeUndefined();
    tunnel.close();
  });

  it('ends where the relay no longer holds it', async () => {
    await open();
    relay.links.clear();
    network.cut();
    await observer.until(() => observer.events.length === 2);
    expect(observer.events).toEqual(['lost', 'broken: the relay no longer holds it']);
  });

  it('looks for its own relay behind an address of several', async () => {
    const tunnel = await open();
    const other = { status: 404, headers: { 'ray-relay-replica': '00000000000000bb' } };
    relay.answers.push(other, other);
    network.cut();
    await observer.until(() => observer.events.includes('resumed'));
    expect(observer.events).toEqual(['lost', 'resumed']);
    tunnel.close();
  });

  it('shows a fresh credential where one was refused', async () => {
    relay.answers.push({ status: 401 });
    const tunnel = await open(endpoint((fresh) => (fresh ? 'new' : 'old')));
    expect(relay.requests.map((request) => request.headers.authorization)).toEqual(['Bearer old', 'Bearer new']);
    tunnel.close();
  });

  it('is not opened with a credential that is refused again', async () => {
    relay.answers.push({ status: 401 }, { status: 401 });
    await expect(open(endpoint(() => 'old'))).rejects.toMatchObject({ status: 401 });
    expect(relay.requests).toHaveLength(1);
  });

  it('loses nothing that arrives together with the greeting', async () => {
    relay.greetsWith = Buffer.from(piece(0, 100));
    const tunnel = await open();
    await observer.until(() => observer.received === 100);
    expect(observer.wrong).toBeUndefined();
    tunnel.close();
  });

  it('ends where more waits for the relay than is kept', async () => {
    const tunnel = await open();
    network.isDown = true;
    network.cut();
    for (let count = 0; count < 20; count += 1) tunnel.write(Buffer.alloc(1024 * 1024));
    expect(observer.events.at(-1)).toBe('broken: too much waits for the relay');
  });
});
