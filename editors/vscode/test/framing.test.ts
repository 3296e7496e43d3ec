// The framing of DAP messages in a byte stream.

import { describe, expect, it } from 'vitest';

import { BadFrame, Deframer, frame } from '../src/dap/framing.js';

const FIRST = { seq: 1, type: 'event', event: 'initialized' };
const SECOND = { seq: 2, type: 'event', event: 'output', body: { output: 'größer 日本 🐍\r\n\r\nContent-Length: 3' } };

const feedText = (text: string) => new Deframer().feed(Buffer.from(text));

/** CPU time of this process in milliseconds, which does not depend on how busy the machine is. */
const cpuTime = () => (process.cpuUsage().user + process.cpuUsage().system) / 1000;

describe('frame', () => {
  it('counts bytes, not characters', () => {
    expect(frame('é').toString()).toBe('Content-Length: 4\r\n\r\n"é"');
  });
});

describe('a deframer', () => {
  it('returns what frame has written', () => {
    expect(new Deframer().feed(frame(SECOND))).toEqual([SECOND]);
  });

  it('returns several messages of one piece in order', () => {
    const both = Buffer.concat([frame(FIRST), frame(SECOND), frame(FIRST)]);
    expect(new Deframer().feed(both)).toEqual([FIRST, SECOND, FIRST]);
  });

  it('returns the same messages wherever the stream is split', () => {
    const stream = Buffer.concat([frame(FIRST), frame(SECOND)]);
    for (let at = 0; at <= stream.length; at += 1) {
      const deframer = new Deframer();
      const messages = [...deframer.feed(stream.subarray(0, at)), ...deframer.feed(stream.subarray(at))];
      expect(messages, `split at ${at}`).toEqual([FIRST, SECOND]);
    }
  });

  it('returns each message with its last byte when bytes arrive one by one', () => {
    const deframer = new Deframer();
    const first = frame(FIRST);
    const ends: number[] = [];
    const stream = Buffer.concat([first, frame(SECOND)]);
    stream.forEach((_, at) => {
      if (deframer.feed(stream.subarray(at, at + 1)).length > 0) ends.push(at + 1);
    });
    expect(ends).toEqual([first.length, stream.length]);
  });

  it('waits for the rest of half a header', () => {
    const deframer = new Deframer();
    expect(deframer.feed(Buffer.from('Content-Len'))).toEqual([]);
    expect(deframer.feed(Buffer.from('gth: 2\r\n\r'))).toEqual([]);
    expect(deframer.feed(Buffer.from('\n{}'))).toEqual([{}]);
  });

  it('returns nothing for an empty piece', () => {
    const deframer = new Deframer();
    expect(deframer.feed(new Uint8Array(0))).toEqual([]);
    expect(deframer.feed(frame(FIRST))).toEqual([FIRST]);
  });

  it('reads a view into a larger buffer', () => {
    const around = Buffer.concat([Buffer.from('junk'), frame(FIRST), Buffer.from('junk')]);
    const view = new Uint8Array(around.buffer, around.byteOffset + 4, around.length - 8);
    expect(new Deframer().feed(view)).toEqual([FIRST]);
  });

  it.each([
    ['other fields before the length', 'Content-Type: x\r\nContent-Length: 2\r\n\r\n{}'],
    ['lower case', 'content-length:2\r\n\r\n{}'],
    ['blanks around the number', 'Content-Length: \t2 \r\n\r\n{}'],
  ])('accepts a header with %s', (_, text) => {
    expect(feedText(text)).toEqual([{}]);
  });

  it.each([
    ['has no length', 'Content-Type: x\r\n\r\n{}'],
    ['has an empty length', 'Content-Length: \r\n\r\n{}'],
    ['has a negative length', 'Content-Length: -2\r\n\r\n{}'],
    ['has a length that is no integer', 'Content-Length: 2.0\r\n\r\n{}'],
    ['has a hexadecimal length', 'Content-Length: 0x2\r\n\r\n{}'],
    ['has a length with an exponent', 'Content-Length: 1e1\r\n\r\n{}'],
    ['is longer than 16 MiB', `Content-Length: ${16 * 1024 * 1024 + 1}\r\n\r\n`],
    ['has a length of many digits', `Content-Length: ${'9'.repeat(20)}\r\n\r\n`],
    ['has no end of its header', 'x'.repeat(1025)],
    ['is empty', 'Content-Length: 0\r\n\r\n'],
    ['is not JSON', 'Content-Length: 2\r\n\r\n{]'],
    ['is cut by its length', 'Content-Length: 3\r\n\r\n{"a":1}'],
  ])('refuses a message that %s', (_, text) => {
    expect(() => feedText(text)).toThrow(BadFrame);
  });

  it('refuses a header that does not end, however it is split', () => {
    const deframer = new Deframer();
    for (let count = 0; count < 1024; count += 1) expect(deframer.feed(Buffer.from('x'))).toEqual([]);
    expect(() => deframer.feed(Buffer.from('x'))).toThrow(BadFrame);
  });

  // The limit of a header holds only while its end has not arrived.
  it('refuses a header that is too long even with its end', () => {
    expect(() => feedText(`X: ${'x'.repeat(2000)}\r\nContent-Length: 2\r\n\r\n{}`)).toThrow(BadFrame);
  });

  it('does not show the content of a bad message in its error', () => {
    expect(() => feedText('Content-Length: 8\r\n\r\n{secret}')).toThrow(/^a message that is no JSON$/);
  });

  it('waits for a message of exactly 16 MiB', () => {
    expect(feedText(`Content-Length: ${16 * 1024 * 1024}\r\n\r\n`)).toEqual([]);
  });

  it('reads a message of 10 MB in pieces of 1 KB in linear time', () => {
    const message = { text: 'x'.repeat(10_000_000) };
    const stream = frame(message);
    const deframer = new Deframer();
    const messages: unknown[] = [];
    const began = cpuTime();
    for (let at = 0; at < stream.length; at += 1024) messages.push(...deframer.feed(stream.subarray(at, at + 1024)));
    // Joining the pieces each time would copy 50 GB.
    expect(cpuTime() - began).toBeLessThan(2_000);
    expect(messages).toEqual([message]);
  });

  it('reads many short messages of one piece in linear time', () => {
    const stream = Buffer.concat(Array.from({ length: 50_000 }, () => frame(FIRST)));
    const began = cpuTime();
    expect(new Deframer().feed(stream)).toHaveLength(50_000);
    expect(cpuTime() - began).toBeLessThan(2_000);
  });
});
