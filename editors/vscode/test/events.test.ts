// Server-sent events, as the relay writes them.

import { describe, expect, it } from 'vitest';

import { EventParser } from '../src/relay/events.js';

const STREAM = 'event: snapshot\ndata: {"a":1}\n\n: keepalive\n\nevent: appeared\ndata: größer 🐍\ndata: two\n\n';
const EVENTS = [
  { name: 'snapshot', data: '{"a":1}' },
  { name: 'appeared', data: 'größer 🐍\ntwo' },
];

const parse = (text: string) => new EventParser().feed(text);

/** CPU time of this process in milliseconds, which does not depend on how busy the machine is. */
const cpuTime = () => (process.cpuUsage().user + process.cpuUsage().system) / 1000;

describe('an event parser', () => {
  it('returns several events of one piece in order', () => {
    expect(parse(STREAM)).toEqual(EVENTS);
  });

  it('returns the same events wherever the stream is split', () => {
    for (let at = 0; at <= STREAM.length; at += 1) {
      const parser = new EventParser();
      const events = [...parser.feed(STREAM.slice(0, at)), ...parser.feed(STREAM.slice(at))];
      expect(events, `split at ${at}`).toEqual(EVENTS);
    }
  });

  it('returns the same events when characters arrive one by one', () => {
    const parser = new EventParser();
    expect([...STREAM].flatMap((one) => parser.feed(one))).toEqual(EVENTS);
  });

  it.each([
    ['a keepalive', ': keepalive\n\n'],
    ['an event without data', 'event: appeared\n\n'],
    ['empty lines', '\n\n\n\n'],
    ['an event that has not ended', 'event: appeared\ndata: 1\n'],
    ['unknown fields', 'id: 1\nretry: 100\nother: x\n\n'],
  ])('returns nothing for %s', (_, text) => {
    expect(parse(text)).toEqual([]);
  });

  it.each([
    ['calls an event without a name "message"', 'data: 1\n\n', 'message', '1'],
    ['removes one space after the colon', 'event:  a\ndata:  1\n\n', ' a', ' 1'],
    ['needs no space after the colon', 'event:a\ndata:1\n\n', 'a', '1'],
    ['keeps colons in data', 'data: {"a": "b:c"}\n\n', 'message', '{"a": "b:c"}'],
    ['keeps an empty line of data', 'data: 1\ndata:\ndata: 2\n\n', 'message', '1\n\n2'],
    ['ignores comments and other fields', ': x\nid: 1\ndata: 1\n:data: 2\n\n', 'message', '1'],
    ['distinguishes upper and lower case in fields', 'Data: 2\ndata: 1\n\n', 'message', '1'],
    ['takes the last name', 'event: a\nevent: b\ndata: 1\n\n', 'b', '1'],
    ['ignores empty lines before an event', '\n\n\nevent: a\ndata: 1\n\n', 'a', '1'],
  ])('%s', (_, text, name, data) => {
    expect(parse(text)).toEqual([{ name, data }]);
  });

  it('does not carry a name to the next event', () => {
    expect(parse('event: a\n\ndata: 1\n\n')).toEqual([{ name: 'message', data: '1' }]);
  });

  it('refuses an event of more than 16 Mi characters', () => {
    const parser = new EventParser();
    const piece = 'x'.repeat(16 * 1024 * 1024);
    for (let count = 0; count < 1; count += 1) expect(parser.feed(piece)).toEqual([]);
    expect(() => parser.feed('x')).toThrow('too large');
  });

  it('forgets the length of events that are complete', () => {
    const parser = new EventParser();
    const event = `data: ${'x'.repeat(1024 * 1024)}\n\n`;
    for (let count = 0; count < 65; count += 1) expect(parser.feed(event)).toHaveLength(1);
  });

  it('reads an event of 10 MB in pieces of 1 KB in linear time', () => {
    const parser = new EventParser();
    const data = 'x'.repeat(10_000_000);
    const stream = `data: ${data}\n\n`;
    const began = cpuTime();
    let events: unknown[] = [];
    for (let at = 0; at < stream.length; at += 1024) events = parser.feed(stream.slice(at, at + 1024));
    expect(cpuTime() - began).toBeLessThan(2_000);
    expect(events).toEqual([{ name: 'message', data }]);
  });

  // An empty piece hides the line end before it.
  it('ignores empty pieces', () => {
    const parser = new EventParser();
    expect(['data: 1\n', '', '\n'].flatMap((piece) => parser.feed(piece))).toHaveLength(1);
  });
});
