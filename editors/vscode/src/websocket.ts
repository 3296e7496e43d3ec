// Waiting for a WebSocket to open.

import type { IncomingMessage } from 'node:http';

import type { WebSocket } from 'ws';

/** What to reject with. */
export interface NotOpened {
  failed(error: Error): Error;
  /** The server has answered with another status. */
  refused(response: IncomingMessage): Promise<Error>;
}

/** Resolves when `socket` is open, and pauses it: what arrives with the handshake waits for a listener. */
export function opened(socket: WebSocket, errors: NotOpened): Promise<WebSocket> {
  return new Promise((resolve, reject) => {
    socket.once('open', () => {
      socket.pause();
      socket.removeAllListeners();
      // Its end is known by `close`.
      socket.on('error', () => {});
      resolve(socket);
    });
    socket.on('error', (error) => reject(errors.failed(error)));
    socket.once('unexpected-response', (request, response) => {
      errors
        .refused(response)
        .then(reject, reject)
        .finally(() => request.destroy());
    });
  });
}
