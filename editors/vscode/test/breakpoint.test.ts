// Rows of the relay as they are read: what may be missing, what is cut, and what is refused.

import { readFileSync } from 'node:fs';

import * as v from 'valibot';
import { describe, expect, it } from 'vitest';

import { Breakpoint, Cluster, List } from '../src/relay/breakpoint.js';
import { REQUIRED, row } from './support/documented.js';

const accepts = (change: object) => v.is(Breakpoint, { ...REQUIRED, ...change });

/** The list that the reference shows. */
function documentedList(): unknown {
  const page = readFileSync(new URL('../../../docs/reference.md', import.meta.url), 'utf8');
  const text = /```json\n(\{"breakpoints":[\s\S]*?)```/.exec(page)?.[1] ?? '';
  return JSON.parse(text);
}

describe('a breakpoint', () => {
  it('is read as the reference shows it', () => {
    const { breakpoints, clusters } = v.parse(List, documentedList());
    expect(breakpoints).toMatchObject([{ id: '8gcg2dnt', pid: 19983, resources: { GPU: 1 }, rank: null }]);
    expect(breakpoints[0]?.location).toEqual({ file: 'train.py', line: 22, function: 'train' });
    expect(clusters).toMatchObject([{ name: 'default', ray_version: '2.60.0', trouble: null, complete: true }]);
  });

  it('needs no optional field', () => {
    expect(row()).toEqual({
      ...REQUIRED,
      holder: null,
      node_ip: '',
      pid: null,
      job_id: null,
      submission_id: null,
      train_run: null,
      submitter: null,
      group: null,
      rank: null,
      world_size: null,
      resources: null,
      reason: 'unknown',
      location: null,
      exception: null,
      why: null,
      task_ended: null,
    });
  });

  it('has no unknown fields', () => {
    expect(row({ future: 1, html: '<script>' })).toEqual(row());
  });

  it('accepts words of a later relay', () => {
    expect(row({ kind: 'other', state: 'other', reason: 'other' })).toMatchObject({ state: 'other' });
  });

  it.each(Object.keys(REQUIRED))('needs %s', (key) => {
    expect(accepts({ [key]: undefined })).toBe(false);
    expect(accepts({ [key]: null })).toBe(false);
    expect(accepts({ [key]: {} })).toBe(false);
  });

  it.each(['a', '0', '8gcg2dnt', 'z'.repeat(32)])('may have the id %s', (id) => {
    expect(accepts({ id })).toBe(true);
  });

  it.each([
    '',
    'z'.repeat(33),
    'ABC',
    '../a',
    'a/b',
    'a b',
    'a\n',
    '\na',
    'a#b',
    'a?b',
    '${env:HOME}',
    'ä',
    '٣',
    'a\u202e',
    '<b>',
    '*',
    3,
    ['a'],
  ])('cannot have the id %j', (id) => {
    expect(accepts({ id })).toBe(false);
  });

  it.each([
    ['a title', { title: 'Z'.repeat(4097) }],
    ['a job', { job_id: 'Z'.repeat(4097) }],
    ['a file', { location: { file: 'Z'.repeat(4097), line: 1 } }],
    ['a holder', { holder: { session: 1, since: 1, subject: 'Z'.repeat(4097) } }],
    ['a node', { node_ip: 'Z'.repeat(4097) }],
  ])('has %s of at most 4096 characters', (_, change) => {
    const texts = JSON.stringify(row(change)).match(/Z+/g);
    expect(texts?.map((text) => text.length)).toEqual([4096]);
  });

  it('keeps a text of 4096 characters', () => {
    expect(row({ title: 'Z'.repeat(4096) }).title).toBe('Z'.repeat(4096));
  });

  it('knows how many ranks there are', () => {
    expect(row({ rank: 3, world_size: 8 })).toMatchObject({ rank: 3, world_size: 8 });
  });

  it.each([
    ['a rank that is text', { rank: '3' }],
    ['a time that is text', { first_seen: '1795649607' }],
    ['a time that is no number', { first_seen: Number.NaN }],
    ['a number of ranks that is text', { world_size: '8' }],
    ['a holder without a session', { holder: { since: 1 } }],
  ])('cannot have %s', (_, change) => {
    expect(accepts(change)).toBe(false);
  });

  it.each([
    ['location', { file: 'a.py' }, null],
    ['location', { file: 5, line: 1 }, null],
    ['location', 'a.py:1', null],
    ['resources', { GPU: '1' }, null],
    ['resources', 'GPU', null],
    ['node_ip', 5, ''],
    ['reason', {}, 'unknown'],
  ])('does without a %s that cannot be read: %j', (key, value, expected) => {
    expect(row({ [key]: value })).toHaveProperty(key, expected);
  });

  it('cannot change a prototype', () => {
    const text = '{"resources": {"__proto__": 1, "GPU": 1}, "__proto__": {"polluted": 1}}';
    const read = v.parse(Breakpoint, Object.assign(JSON.parse(text) as object, REQUIRED));
    expect(Object.keys(read.resources ?? {})).toEqual(['GPU']);
    expect(read).not.toHaveProperty('polluted');
    expect({}).not.toHaveProperty('polluted');
  });
});

describe('a holder', () => {
  it('needs only its session and time', () => {
    const holder = { session: 4, since: 1, replica: 'a', peer: '10.0.0.9:1', evaluates: true };
    expect(row({ holder }).holder).toEqual({
      session: 4,
      since: 1,
      subject: null,
      client: '',
      parked_until: null,
    });
  });
});

describe('a cluster', () => {
  it('needs only its name', () => {
    expect(v.parse(Cluster, { name: 'a', future: 1 })).toEqual({
      name: 'a',
      ray_version: null,
      isRead: false,
      trouble: null,
      complete: true,
      pending: false,
    });
  });

  it.each([{}, { name: null }, { name: 'a', trouble: 1 }, null])('is refused: %j', (cluster) => {
    expect(v.is(Cluster, cluster)).toBe(false);
  });
});
