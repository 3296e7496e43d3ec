// A stand-in for a Kubernetes API server with one relay: its Service, a pod, and port-forwards to a port of this machine.

import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import * as http from 'node:http';
import * as net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { WebSocketServer, type WebSocket } from 'ws';

const LABEL = { 'app.kubernetes.io/name': 'ray-relay' };

export class StandInApi {
  readonly requests: http.IncomingMessage[] = [];
  /** Answers to paths that contain these, in place of the usual. */
  readonly refusals = new Map<string, number>();
  isPodReady = true;
  /** The protocol that the Service's port names. */
  appProtocol: string | undefined;
  private readonly server = http.createServer((request, response) => this.answer(request, response));
  private readonly sockets = new WebSocketServer({ noServer: true, handleProtocols: () => 'v4.channel.k8s.io' });
  private readonly folder = mkdtempSync(join(tmpdir(), 'ray-relay-kube-'));

  private constructor(private readonly target: number) {}

  /** An API server whose pod listens at the port `target` of this machine. Sets KUBECONFIG. */
  static async start(target: number): Promise<StandInApi> {
    const api = new StandInApi(target);
    api.server.on('upgrade', (request, socket, head) => api.forward(request, socket as net.Socket, head));
    api.server.listen(0, '127.0.0.1');
    await once(api.server, 'listening');
    const { port } = api.server.address() as net.AddressInfo;
    const file = join(api.folder, 'config');
    const config = {
      apiVersion: 'v1',
      kind: 'Config',
      clusters: [{ name: 'c', cluster: { server: `http://127.0.0.1:${port}`, 'insecure-skip-tls-verify': true } }],
      users: [{ name: 'ann', user: { token: 'login-of-ann' } }],
      contexts: [{ name: 'dev', context: { cluster: 'c', user: 'ann', namespace: 'ml' } }],
      'current-context': 'dev',
    };
    writeFileSync(file, JSON.stringify(config));
    process.env.KUBECONFIG = file;
    return api;
  }

  private answer(request: http.IncomingMessage, response: http.ServerResponse): void {
    this.requests.push(request);
    const path = request.url ?? '';
    for (const [part, status] of this.refusals) {
      if (path.includes(part)) {
        response.writeHead(status).end(JSON.stringify({ kind: 'Status', message: `no ${part}` }));
        return;
      }
    }
    response.end(JSON.stringify(this.object(path)));
  }

  private object(path: string): object {
    const service = {
      metadata: { name: 'ray-relay', namespace: 'ray-relay' },
      spec: {
        selector: LABEL,
        ports: [{ name: 'relay', port: 5678, targetPort: 'relay', appProtocol: this.appProtocol }],
      },
    };
    if (path.endsWith('/token'))
      return { status: { token: 'account-token', expirationTimestamp: '2030-01-02T03:04:05Z' } };
    if (path.includes('/services?')) return { items: [service] };
    if (path.includes('/services/')) return service;
    const status = { conditions: [{ type: 'Ready', status: this.isPodReady ? 'True' : 'False' }] };
    const ports = [{ name: 'relay', containerPort: 5678 }];
    return { items: [{ metadata: { name: 'ray-relay-0' }, spec: { containers: [{ ports }] }, status }] };
  }

  private forward(request: http.IncomingMessage, socket: net.Socket, head: Buffer): void {
    this.requests.push(request);
    const refused = this.refusals.get('portforward');
    if (refused !== undefined) {
      socket.end(`HTTP/1.1 ${refused} No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`);
      return;
    }
    this.sockets.handleUpgrade(request, socket, head, (webSocket) => this.join(webSocket));
  }

  private join(socket: WebSocket): void {
    const port = Buffer.alloc(2);
    port.writeUInt16LE(5678);
    for (const channel of [0, 1]) socket.send(Buffer.concat([Buffer.of(channel), port]));
    const pod = net.connect(this.target, '127.0.0.1');
    pod.on('data', (data) => socket.send(Buffer.concat([Buffer.of(0), data])));
    pod.on('error', (error) => socket.send(Buffer.concat([Buffer.of(1), Buffer.from(error.message)])));
    pod.on('close', () => socket.close());
    socket.on('message', (message: Buffer) => message[0] === 0 && pod.write(message.subarray(1)));
    socket.on('close', () => pod.destroy());
    socket.on('error', () => {});
  }

  /** Ends all port-forwards, as a kubelet that is restarted does. */
  cut(): void {
    for (const client of this.sockets.clients) client.terminate();
  }

  stop(): void {
    this.cut();
    this.server.close();
    delete process.env.KUBECONFIG;
    rmSync(this.folder, { recursive: true });
  }
}
