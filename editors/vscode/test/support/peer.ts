// The relay's end of links, for tests: echoes what it receives, over as many WebSockets as it takes.

import { once } from 'node:events';
import * as http from 'node:http';
import * as net from 'node:net';

import { WebSocketServer, type WebSocket } from 'ws';

import { DOWN_WINDOW_BYTES, MAX_FRAME_BYTES, UP_WINDOW_BYTES } from '../../src/tunnel/link.js';
import { IncomingOffsets, OutgoingOffsets } from '../../src/tunnel/offsets.js';

export const REPLICA = '00000000000000aa';

/** One link. Written apart from the extension's own, but for the positions. */
class PeerLink {
  private readonly incoming = new IncomingOffsets(UP_WINDOW_BYTES);
  private readonly outgoing = new OutgoingOffsets(DOWN_WINDOW_BYTES);
  private readonly waiting: Uint8Array[] = [];
  private socket: WebSocket | undefined;
  isUsed = false;
  hasEnded = false;

  get received(): number {
    return this.incoming.received;
  }

  carry(socket: WebSocket, received: number | undefined, first: object, early?: Buffer): void {
    this.socket?.terminate();
    this.socket = socket;
    this.outgoing.resume(received ?? 0);
    this.incoming.resume();
    if (early === undefined) socket.send(JSON.stringify(first));
    else this.sendTogether(socket, JSON.stringify(first), early);
    socket.on('message', (data: Buffer, isBinary) => {
      if (socket !== this.socket) return;
      if (isBinary) this.receive(data);
      else this.read(JSON.parse(data.toString()) as { type: string; before?: number });
      this.pump();
    });
    this.pump();
  }

  /** Both frames in one write, as a proxy or TLS may deliver them. */
  private sendTogether(socket: WebSocket, first: string, early: Buffer): void {
    this.outgoing.write(early);
    const stream = (socket as unknown as { _socket: net.Socket })._socket;
    stream.cork();
    socket.send(first);
    socket.send(this.outgoing.send(MAX_FRAME_BYTES) as Uint8Array);
    stream.uncork();
  }

  private receive(data: Buffer): void {
    if (data.length > 0) {
      this.incoming.receive(data.length);
      this.waiting.push(data);
    } else {
      this.incoming.finish();
      this.hasEnded = true;
    }
  }

  private read(message: { type: string; before?: number }): void {
    if (message.type === 'used') this.isUsed = true;
    if (message.type === 'taken') this.outgoing.acknowledge(message.before ?? -1);
    if (message.type === 'gone') this.outgoing.abandon();
  }

  private pump(): void {
    const { socket } = this;
    if (socket === undefined) return;
    for (let first = this.waiting[0]; first !== undefined; first = this.waiting[0]) {
      const accepted = this.outgoing.write(first);
      if (accepted < first.length) {
        this.waiting[0] = first.subarray(accepted);
        break;
      }
      this.waiting.shift();
    }
    if (this.hasEnded && this.waiting.length === 0) this.outgoing.finish();
    for (;;) {
      const before = this.incoming.acknowledge(false);
      if (before !== undefined) socket.send(JSON.stringify({ type: 'taken', before }));
      const sent = this.outgoing.send(MAX_FRAME_BYTES);
      if (sent === undefined) return;
      socket.send(sent === 'end' ? Buffer.alloc(0) : sent);
    }
  }
}

/** A relay that knows the protocol of `connect` alone. `answers` are given in place of a WebSocket, one each. */
export class EchoRelay {
  readonly links = new Map<string, PeerLink>();
  readonly requests: http.IncomingMessage[] = [];
  /** Bytes that a new link sends in one write with its first message. */
  greetsWith: Buffer | undefined;
  readonly answers: { status: number; headers?: Record<string, string> }[] = [];
  private readonly server = http.createServer();
  private readonly upgrades = new WebSocketServer({ noServer: true });

  static async start(): Promise<EchoRelay> {
    const relay = new EchoRelay();
    relay.server.on('upgrade', (request, socket, head) => relay.upgrade(request, socket as net.Socket, head));
    relay.server.listen(0, '127.0.0.1');
    await once(relay.server, 'listening');
    return relay;
  }

  get port(): number {
    return (this.server.address() as net.AddressInfo).port;
  }

  private upgrade(request: http.IncomingMessage, socket: net.Socket, head: Buffer): void {
    this.requests.push(request);
    const answer = this.answers.shift();
    const id = request.url?.split('/')[4];
    const known = id === undefined ? undefined : this.links.get(id);
    if (answer !== undefined || (id !== undefined && known === undefined)) {
      const { status, headers } = answer ?? { status: 404, headers: { 'ray-relay-replica': REPLICA } };
      const lines = Object.entries(headers ?? {}).map(([name, value]) => `${name}: ${value}\r\n`);
      socket.end(`HTTP/1.1 ${status} No\r\nConnection: close\r\n${lines.join('')}Content-Length: 0\r\n\r\n`);
      return;
    }
    this.upgrades.handleUpgrade(request, socket, head, (webSocket) => {
      webSocket.on('error', () => {});
      const received = Number(request.headers['ray-relay-received'] ?? 0);
      if (known !== undefined) known.carry(webSocket, received, { type: 'resumed', received: known.received });
      else this.begin(webSocket);
    });
  }

  private begin(webSocket: WebSocket): void {
    const id = String(this.links.size + 1).padStart(16, '0');
    const link = new PeerLink();
    this.links.set(id, link);
    const begun = { type: 'begun', link: id, secret: 'ab'.repeat(16), replica: REPLICA, held: 900 };
    link.carry(webSocket, undefined, begun, this.greetsWith);
  }

  stop(): void {
    for (const client of this.upgrades.clients) client.terminate();
    this.server.close();
  }
}

/** A network between a client and a port, which can be cut. */
export class Network {
  private readonly server = net.createServer((client) => this.join(client));
  private readonly sockets = new Set<net.Socket>();
  /** Refuses connections while it is true. */
  isDown = false;

  private constructor(private readonly port: number) {}

  static async to(port: number): Promise<Network> {
    const network = new Network(port);
    network.server.listen(0, '127.0.0.1');
    await once(network.server, 'listening');
    return network;
  }

  get url(): URL {
    return new URL(`http://127.0.0.1:${(this.server.address() as net.AddressInfo).port}`);
  }

  private join(client: net.Socket): void {
    if (this.isDown) return void client.destroy();
    const server = net.connect(this.port, '127.0.0.1');
    client.pipe(server).pipe(client);
    for (const socket of [client, server]) {
      this.sockets.add(socket);
      socket.on('error', () => {});
      socket.on('close', () => {
        this.sockets.delete(socket);
        client.destroy();
        server.destroy();
      });
    }
  }

  /** Ends all connections, with what is on its way. */
  cut(): void {
    for (const socket of this.sockets) socket.resetAndDestroy();
  }

  stop(): void {
    this.cut();
    this.server.close();
  }
}
