// A tunnel to a real relay, where one is built (`cargo build`): its own end of the protocol, and of HTTP inside of it.

import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import * as http from 'node:http';
import * as net from 'node:net';
import { Duplex } from 'node:stream';
import { fileURLToPath } from 'node:url';

import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';

import { List } from '../src/relay/breakpoint.js';
import { Endpoint } from '../src/relay/endpoint.js';
import { Tunnel } from '../src/tunnel/tunnel.js';
import { Network } from './support/peer.js';

const BINARY = process.env.RAY_RELAY_BIN ?? fileURLToPath(new URL('../../../target/debug/ray-relay', import.meta.url));
const OPENER = '0123456789abcdef.fedcba9876543210';
const CUTS = 20;
const REQUESTS = 400;

let relay: ChildProcess;
let network: Network | undefined;
let direct: URL;

async function freePort(): Promise<number> {
  const server = net.createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as net.AddressInfo;
  server.close();
  return port;
}

/** A tunnel as a socket. */
class TunnelSocket extends Duplex {
  private readonly tunnel: Promise<Tunnel>;

  constructor(endpoint: Endpoint) {
    super();
    this.tunnel = Tunnel.open(endpoint, OPENER, {
      bytes: (bytes) => this.push(bytes),
      end: () => this.push(null),
      broken: (why) => this.destroy(new Error(why)),
      lost: () => {},
      resumed: () => {},
    });
    this.tunnel.catch((error: Error) => this.destroy(error));
  }

  override _read(): void {}

  // What an agent asks of a socket that it keeps.
  readonly setKeepAlive = () => this;
  readonly setTimeout = () => this;
  readonly ref = () => this;
  readonly unref = () => this;

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: (error?: Error) => void): void {
    void this.tunnel.then((tunnel) => {
      tunnel.write(chunk);
      done();
    });
  }

  override _final(done: () => void): void {
    void this.tunnel.then((tunnel) => {
      tunnel.close();
      done();
    });
  }
}

function get(url: URL, agent?: http.Agent): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    http
      .get(url, { agent }, (response) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk: Buffer) => chunks.push(chunk));
        response.on('end', () => resolve(Buffer.concat(chunks)));
        response.on('error', reject);
      })
      .on('error', reject);
  });
}

const endpointAt = (url: URL) =>
  new Endpoint(
    () => Promise.resolve({ url, options: {} }),
    () => Promise.resolve(undefined),
  );

describe.skipIf(!existsSync(BINARY) && process.env.CI === undefined)('a real relay', () => {
  beforeAll(async () => {
    const port = await freePort();
    direct = new URL(`http://127.0.0.1:${port}`);
    // Nothing listens there: a relay without a cluster.
    const args = [
      'serve',
      '--ray-address',
      'http://127.0.0.1:9',
      '--listen',
      `127.0.0.1:${port}`,
      '--insecure-no-auth',
    ];
    relay = spawn(BINARY, args, { stdio: 'ignore' });
    const isUp = () =>
      get(new URL('/relay/healthz', direct)).then(
        () => true,
        () => false,
      );
    await vi.waitUntil(isUp, { timeout: 30_000 });
    network = await Network.to(port);
  }, 40_000);

  afterAll(() => {
    network?.stop();
    // It would drain first, and wait for clients.
    relay.kill('SIGKILL');
  });

  it('serves HTTP through a tunnel that is cut, byte for byte', { timeout: 120_000 }, async () => {
    const path = new URL('/relay/page/main.js', direct);
    const expected = await get(path);
    const socket = new TunnelSocket(endpointAt(network!.url));
    const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
    agent.createConnection = () => socket;
    for (let count = 0; count < REQUESTS; count += 1) {
      if (count % (REQUESTS / CUTS) === 0) network!.cut();
      const received = await get(path, agent);
      if (!received.equals(expected)) expect.fail(`response ${count} differs`);
    }
    agent.destroy();
  });

  it('has a list that can be read, and says what troubles its cluster', async () => {
    const list = await endpointAt(direct).json(List, '/relay/v1/breakpoints');
    expect(list.breakpoints).toEqual([]);
    expect(list.clusters).toHaveLength(1);
    expect(list.clusters[0]?.name).toBe('default');
  });

  it('refuses a path that it does not have, in a sentence', async () => {
    const asked = endpointAt(direct).json(List, '/relay/v1/nothing');
    await expect(asked).rejects.toMatchObject({ status: 404, message: expect.stringMatching(/\(request /) as string });
  });
});
