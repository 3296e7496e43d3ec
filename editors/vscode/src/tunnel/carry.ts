// Carries a link over one WebSocket, until that is lost.

import type { WebSocket } from 'ws';

import type { Link } from './link.js';
import { oneLine } from '../text.js';

/** Interval of pings by either side. */
const HEARTBEAT_MS = 5_000;

/** Silence after which the other side is considered gone. */
const SILENCE_MS = 15_000;

const NORMAL = 1000;
const POLICY = 1008;

/** Why a WebSocket no longer carries a link: the link is over here, the relay has ended it, or another may carry it on. */
export type Cut = { kind: 'over' } | { kind: 'ended'; why: string } | { kind: 'lost'; why: string };

/** A WebSocket, messages that it has already delivered, and the position before which the relay has everything. */
export interface Transport {
  socket: WebSocket;
  early: { data: Buffer; isBinary: boolean }[];
  received: number;
}

/** Carries `link` over a transport. Notes in `last` when anything was received. */
export function carry(link: Link, transport: Transport, last: { receivedAt: number }): Promise<Cut> {
  const { socket, early, received } = transport;
  return new Promise((resolve) => {
    let number: number;
    const finish = (cut: Cut, code?: number) => {
      clearInterval(heartbeat);
      clearTimeout(silence);
      link.onToSend = () => {};
      socket.removeAllListeners();
      socket.on('error', () => {});
      if (code === undefined) socket.terminate();
      else socket.close(code);
      resolve(cut);
    };
    const fail = (error: unknown) => {
      link.onToSend = () => {};
      link.breakOff(error instanceof Error ? error.message : 'the two sides disagree');
      finish({ kind: 'over' }, POLICY);
    };
    const pump = (all: boolean) => {
      for (let next = link.next(number, all); next.kind !== 'nothing'; next = link.next(number, false)) {
        if (next.kind === 'over') return finish({ kind: 'over' }, POLICY);
        if (next.kind === 'done') return finish({ kind: 'over' }, NORMAL);
        if (next.kind === 'message') socket.send(JSON.stringify(next.message));
        else socket.send(next.kind === 'end' ? new Uint8Array(0) : next.bytes, { binary: true });
      }
    };
    const isSilent = () => finish({ kind: 'lost', why: 'the relay was silent for too long' });
    let silence = setTimeout(isSilent, SILENCE_MS);
    const receivedAny = () => {
      last.receivedAt = Date.now();
      clearTimeout(silence);
      silence = setTimeout(isSilent, SILENCE_MS);
    };
    const heartbeat = setInterval(() => {
      pump(true);
      const time = Buffer.alloc(8);
      time.writeBigUInt64BE(BigInt(Date.now()));
      if (socket.readyState === socket.OPEN) socket.ping(time);
    }, HEARTBEAT_MS);
    socket.on('ping', receivedAny).on('pong', receivedAny);
    const receive = (data: Buffer, isBinary: boolean) => {
      receivedAny();
      try {
        if (isBinary) link.receive(number, data);
        else link.receiveText(number, data.toString('utf8'));
      } catch (error) {
        fail(error);
      }
    };
    socket.removeAllListeners('message');
    socket.on('message', receive);
    socket.on('error', (error) => finish({ kind: 'lost', why: error.message }));
    socket.on('close', (code, reason) => {
      if (code === NORMAL) {
        link.done();
        finish({ kind: 'over' });
      } else if (code === POLICY) {
        finish({ kind: 'ended', why: oneLine(reason.toString('utf8'), 200) });
      } else {
        finish({ kind: 'lost', why: 'the connection was closed' });
      }
    });
    try {
      number = link.attach(received);
    } catch (error) {
      return fail(error);
    }
    link.onToSend = () => pump(false);
    for (const { data, isBinary } of early) receive(data, isBinary);
    pump(false);
    socket.resume();
  });
}
