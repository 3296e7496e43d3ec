// TLS in front of a port of this machine, with a certificate that signs itself. Needs `openssl`.

import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import * as net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as tls from 'node:tls';

export class TlsFront {
  private constructor(
    readonly certificate: string,
    private readonly server: tls.Server,
  ) {}

  /** With a certificate for the host `name`, in front of the port `target`. */
  static async start(name: string, target: number): Promise<TlsFront> {
    const folder = mkdtempSync(join(tmpdir(), 'ray-relay-tls-'));
    const [key, cert] = [join(folder, 'key.pem'), join(folder, 'cert.pem')];
    const names = ['-subj', '/CN=relay', '-addext', `subjectAltName=DNS:${name}`];
    const made = ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2'];
    execFileSync('openssl', [...made, '-keyout', key, '-out', cert, ...names], { stdio: 'ignore' });
    const certificate = readFileSync(cert, 'utf8');
    const server = tls.createServer({ key: readFileSync(key), cert: certificate }, (socket) => {
      const behind = net.connect(target, '127.0.0.1');
      socket.on('error', () => behind.destroy());
      behind.on('error', () => socket.destroy());
      socket.pipe(behind).pipe(socket);
    });
    rmSync(folder, { recursive: true });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return new TlsFront(certificate, server);
  }

  get port(): number {
    return (this.server.address() as net.AddressInfo).port;
  }

  stop(): void {
    this.server.close();
  }
}
