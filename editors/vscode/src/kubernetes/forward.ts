// Connections to a pod, each forwarded through the API server over a WebSocket (`v4.channel.k8s.io`).

import { Duplex } from 'node:stream';

import { WebSocket } from 'ws';

import { KubeError } from './error.js';
import { oneLine } from '../text.js';
import { opened } from '../websocket.js';
import { ROLES, type KubeCluster } from './cluster.js';
import type { RelayPod } from './service.js';

const PROTOCOL = 'v4.channel.k8s.io';
const HANDSHAKE_TIMEOUT_MS = 15_000;

/** Largest message of the API server. */
const MAX_MESSAGE_BYTES = 4 * 1024 * 1024;

/** Each message begins with its channel. */
const DATA_CHANNEL = 0;
const ERROR_CHANNEL = 1;

/** The first message of each channel is the port, in two bytes. */
const PORT_BYTES = 2;

/** A connection to the port of `pod`. Throws a {@link KubeError}. */
export async function forwarded(cluster: KubeCluster, pod: RelayPod): Promise<Duplex> {
  const { namespace, name, port } = pod;
  const path = `/api/v1/namespaces/${encodeURIComponent(namespace)}/pods/${encodeURIComponent(name)}/portforward?ports=${port}`;
  const { url, options } = await cluster.target(path);
  url.protocol = url.protocol.replace('http', 'ws');
  const socket = new WebSocket(url, PROTOCOL, {
    ...(options as object),
    handshakeTimeout: HANDSHAKE_TIMEOUT_MS,
    maxPayload: MAX_MESSAGE_BYTES,
    perMessageDeflate: false,
  });
  await opened(socket, {
    failed: (error) => new KubeError(`The port-forward fails: ${oneLine(error.message, 200)}.`),
    refused: ({ statusCode }) => Promise.resolve(refusal(statusCode, namespace)),
  });
  return new ForwardedConnection(socket);
}

function refusal(status: number | undefined, namespace: string): KubeError {
  if (status !== 403) return new KubeError(`Kubernetes answers ${status} to the port-forward.`);
  return new KubeError(`You may not forward ports to pods in the namespace ${namespace}: ${ROLES}`);
}

/** Has what `node:http` and ws ask of a socket besides. */
class ForwardedConnection extends Duplex {
  private readonly hasPort = new Set<number>();
  private timer: NodeJS.Timeout | undefined;
  readonly setKeepAlive = () => this;
  readonly setNoDelay = () => this;
  readonly ref = () => this;
  readonly unref = () => this;

  constructor(private readonly socket: WebSocket) {
    super();
    socket.on('message', (data: Buffer) => this.receive(data));
    socket.on('close', () => this.push(null));
    socket.on('error', (error) => this.destroy(error));
    socket.resume();
  }

  private receive(message: Buffer): void {
    const channel = message[0] ?? -1;
    const isFirst = !this.hasPort.has(channel);
    this.hasPort.add(channel);
    const data = message.subarray(isFirst ? 1 + PORT_BYTES : 1);
    if (data.length === 0) return;
    if (channel === ERROR_CHANNEL) this.destroy(new Error(oneLine(data.toString('utf8'), 200)));
    else if (channel === DATA_CHANNEL && !this.push(data)) this.socket.pause();
  }

  /** Emits `timeout` after so many milliseconds; 0: never. */
  setTimeout(milliseconds: number, done?: () => void): this {
    clearTimeout(this.timer);
    if (milliseconds > 0) this.timer = setTimeout(() => this.emit('timeout'), milliseconds);
    if (done !== undefined) this.once('timeout', done);
    return this;
  }

  override _read(): void {
    this.socket.resume();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    const message = Buffer.concat([Buffer.of(DATA_CHANNEL), chunk]);
    this.socket.send(message, { binary: true }, done);
  }

  override _final(done: (error?: Error | null) => void): void {
    this.socket.close();
    done();
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    clearTimeout(this.timer);
    this.socket.terminate();
    done(error);
  }
}
