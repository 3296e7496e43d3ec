// The network between VS Code and the relay, which can be lost.

import { once } from 'node:events';
import * as net from 'node:net';

export class Network {
  isLost = false;
  connections = new Set();

  /** In front of the port `target` of this machine. */
  static async start(target) {
    const network = new Network();
    network.server = net.createServer((client) => network.join(client, target)).listen(0, '127.0.0.1');
    await once(network.server, 'listening');
    network.port = network.server.address().port;
    return network;
  }

  join(client, target) {
    if (this.isLost) return client.destroy();
    const relay = net.connect(target, '127.0.0.1');
    this.connections.add(client);
    for (const [one, other] of [
      [client, relay],
      [relay, client],
    ]) {
      one.on('error', () => {});
      one.on('close', () => {
        other.destroy();
        this.connections.delete(client);
      });
      one.pipe(other);
    }
  }

  lose() {
    this.isLost = true;
    for (const client of this.connections) client.destroy();
  }

  find() {
    this.isLost = false;
  }
}
